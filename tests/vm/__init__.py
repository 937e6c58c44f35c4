"""A real cgroup v2 node in a virtual machine: `python -m tests.vm` (make test-node)."""
