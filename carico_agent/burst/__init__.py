"""Jobs that do not fit at home run elsewhere, exactly once.

`protocol` has every transition of a move and no I/O, `steps` turns them into requests, `mover` sends those. `overflow`,
`waits`, `sizing` and `choice` decide when, where and how large, and know no clock. `provisioner` runs the command
that makes nodes. The source of the idea is "A Hybrid Cloud Kubernetes Scheduler for Machine Learning Workloads"
(thesis, chapter 4), which copies a Job and deletes it afterwards, so that both may run.
"""
