"""What a container should request. Histories go in (`sources`, `history`), a recommendation with its reasons comes out
(`advice`). A method is a file in `methods`."""
