"""Who runs here: containerd events or the cgroup tree; Pods and churn."""
