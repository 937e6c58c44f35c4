"""`carico demo`: Pod-Capacity beside a known truth, on this machine."""
