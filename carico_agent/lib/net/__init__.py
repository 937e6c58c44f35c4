"""The floor under all that listens or connects: one HTTP server, limits, TLS, addresses, metrics text, time."""
