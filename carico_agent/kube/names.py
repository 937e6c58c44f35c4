"""What carico's things are called on Kubernetes objects."""

POD_CAPACITY, SLOTS, STATUS = "carico.dev/pod-capacity", "carico.dev/slots", "carico.dev/status"
KINDS = "carico.dev/kinds"
"""What is left per resource and what each kind takes (kube/kinds.py)."""

ANNOTATIONS = (POD_CAPACITY, SLOTS, STATUS, KINDS)
"""All that are ours on a Node."""

RESOURCE = "carico.dev/pods"
