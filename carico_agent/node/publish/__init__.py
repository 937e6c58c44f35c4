"""How others learn the number: local socket, metrics, status file."""
