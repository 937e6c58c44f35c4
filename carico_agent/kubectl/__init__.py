"""`kubectl carico`: the cluster's nodes and Pods by what carico publishes of them, with the user's kubeconfig alone."""

from carico_agent.kubectl.command import main

__all__ = ["main"]
