"""Recommendations carried out on running Pods: decided by what is free on the node, journalled, and taken back."""
