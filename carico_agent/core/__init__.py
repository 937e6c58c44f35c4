"""The numbers: usage and a time go in, an estimate comes out. numpy only, no clock, file, log or socket."""
