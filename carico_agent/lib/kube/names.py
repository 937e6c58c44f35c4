"""What carico's things are called on Kubernetes objects."""

POD_CAPACITY, SLOTS, STATUS = "carico.dev/pod-capacity", "carico.dev/slots", "carico.dev/status"
WORKLOADS = "carico.dev/workloads"
"""What is left per resource and what each workload takes (kube/workloads.py)."""

ROOM_AGAIN = "carico.dev/room-again"
"""When an extender last told kube-scheduler, by writing this, that a waiting Pod has room here."""

ANNOTATIONS = (POD_CAPACITY, SLOTS, STATUS, WORKLOADS)
"""All that are ours on a Node."""

RESOURCE = "carico.dev/pods"
