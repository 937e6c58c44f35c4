"""Which Pods of a node would fit elsewhere, and which nodes are not needed: kube-scheduler's own rules on lists."""
