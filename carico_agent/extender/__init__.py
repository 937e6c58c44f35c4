"""kube-scheduler asks for nodes with room: extender, admission webhook, placement, policies."""
