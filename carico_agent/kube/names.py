"""What carico's things are called on Kubernetes objects."""

POD_CAPACITY, SLOTS, STATUS = "carico.dev/pod-capacity", "carico.dev/slots", "carico.dev/status"
RESOURCE = "carico.dev/pods"
