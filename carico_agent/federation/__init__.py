"""Nodes learn from each other: contributions over gRPC, one view of the cluster."""
