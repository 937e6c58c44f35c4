"""A real cgroup v2 node in a virtual machine: `python -m tests.node` (make test-node)."""
