"""Which Pod holds a slot on which node.

`lifecycle` has the states of one Pod, `ledger` the table of all slots that Pods hold, and `placer` takes a slot for a
Pod. `placed_pods` has the Pods that the leading extender has placed lately; the other extenders (`replicas`) ask the
leader by `leader_questions`."""
