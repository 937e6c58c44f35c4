"""kube-scheduler's filters, written once: what burst and `kubectl carico drain-check` ask of a Pod and a node.

Source: pkg/scheduler/framework/plugins of Kubernetes 1.36. `pod_rules` holds what concerns one node (nodeaffinity,
tainttoleration, nodeunschedulable, nodeports), `neighbours` what concerns the Pods on all nodes (interpodaffinity,
podtopologyspread), `selectors` how labels are matched. Amounts (noderesources) are compared where they are kept:
`lib/kube/pod_requests.py` counts them. Not covered: claims of DRA, limits on attached volumes, volumes that are not
bound yet, and preemption. tests/burst/test_filters_differ.py holds random Pods and nodes against a real kube-scheduler.
"""
