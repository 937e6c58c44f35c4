"""A whole Kubernetes cluster on one machine: control plane, kwok nodes, virtual machines as real nodes, and carico."""
