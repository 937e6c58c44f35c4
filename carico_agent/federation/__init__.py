"""Nodes learn from each other: subspaces over gRPC."""
