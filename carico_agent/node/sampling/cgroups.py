"""Which cgroup hierarchy this node has; `carico doctor` says it."""

from typing import Literal

from carico_agent.node.sampling.root import Root

Mode = Literal["v2", "hybrid", "v1", "none"]


def cgroup_mode(root: Root) -> Mode:
    """v2: unified; hybrid: v1 controllers beside a v2 tree in unified/; v1: controllers only; none: not mounted."""
    if root.exists("sys/fs/cgroup/cgroup.controllers"):
        return "v2"
    if root.exists("sys/fs/cgroup/unified/cgroup.controllers"):
        return "hybrid"
    if any(root.exists(f"sys/fs/cgroup/{name}") for name in ("cpu", "cpu,cpuacct", "memory", "systemd")):
        return "v1"
    return "none"
