"""Which Pod holds a place on which node: its state (`lifecycle`), all places (`ledger`), who takes one (`placer`), the
Pods that the leading extender has placed lately (`placed_pods`), and how the others (`replicas`) ask it (`asks`)."""
