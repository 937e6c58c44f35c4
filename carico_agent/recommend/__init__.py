"""What a container should request, and where it packs best. numpy only: no clock, file, log or socket.

Histories go in (`history`, `series`), a recommendation with its reasons comes out (`advice`). A method is a file in
`methods`; packing scores are in `packing`.
"""
