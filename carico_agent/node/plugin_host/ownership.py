"""Who else rules a cgroup file on this node: then we keep our hands off it and say why.

Two agents that write the same file overwrite each other, and the workload loses. Each row of the tables below is one
known owner; what cannot be read is no evidence.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from carico_agent.node.plugin_host.knobs import KNOBS
from carico_agent.node.plugin_host.knobs.kinds import Controller

ALL: tuple[Controller, ...] = ("memory", "cpuset", "cpu")

PROCESSES: dict[str, tuple[Controller, ...]] = {
    "koordlet": ALL,
    "crane-agent": ALL,
    "katalyst-agent": ALL,
    "nri-resource-po": ("memory", "cpuset"),  # nri-resource-policy-*: the kernel keeps 15 letters
    "cri-resmgr": ("memory", "cpuset"),
}


@dataclass(frozen=True, slots=True)
class KnobOwner:
    """A program that rules the files of `controllers`; `why` is the evidence."""

    name: str
    controllers: tuple[Controller, ...]
    why: str


def find_owners(root: str | os.PathLike[str] = "/") -> list[KnobOwner]:
    """Everybody who rules a file of ours, by what is found under `root`."""
    base = Path(root)
    found = [_memory_qos(base), _static_cpu_manager(base), _nri_plugins(base), *_processes(base)]
    return [owner for owner in found if owner is not None]


class Ownership:
    """Answers `owner_of(key)` for the writer; looked up again by `refresh`."""

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self._root = root
        self.owners: list[KnobOwner] = []
        self.refresh()

    def refresh(self) -> None:
        self.owners = find_owners(self._root)

    def owner_of(self, key: str) -> str | None:
        controller = KNOBS[key].controller
        owner = next((owner for owner in self.owners if controller in owner.controllers), None)
        return f"{key} belongs to {owner.name} ({owner.why})" if owner else None


def _memory_qos(base: Path) -> KnobOwner | None:
    """kubelet's feature gate MemoryQoS, in its configuration (YAML or JSON) or on its command line."""
    for path in ("var/lib/kubelet/config.yaml", "etc/kubernetes/kubelet/config.json", "etc/kubernetes/kubelet.conf"):
        if re.search(r'["\']?MemoryQoS["\']?\s*:\s*true', _text(base / path)):
            return KnobOwner("the kubelet's MemoryQoS", ("memory",), f"/{path}")
    for pid, name in _names(base):
        if name != "kubelet" or not _rules_the_node(base, pid):
            continue
        if "MemoryQoS=true" in _text(base / "proc" / pid / "cmdline"):
            return KnobOwner("the kubelet's MemoryQoS", ("memory",), f"command line of process {pid}")
    return None


def _static_cpu_manager(base: Path) -> KnobOwner | None:
    path = "var/lib/kubelet/cpu_manager_state"
    try:
        state = json.loads(_text(base / path) or "{}")
    except ValueError:
        return None
    policy = state.get("policyName", "none") if isinstance(state, dict) else "none"
    return (
        KnobOwner(f"the kubelet's CPU manager, policy {policy}", ("cpuset",), f"/{path}") if policy != "none" else None
    )


def _nri_plugins(base: Path) -> KnobOwner | None:
    """Plugins that containerd starts by itself. The socket alone is no evidence: containerd 2 always has it."""
    folder = base / "opt/nri/plugins"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None
    return KnobOwner(f"NRI plugin {names[0]}", ALL, "/opt/nri/plugins") if names else None


def _processes(base: Path) -> list[KnobOwner]:
    return [
        KnobOwner(name, PROCESSES[name], f"process {pid} runs here")
        for pid, name in _names(base)
        if PROCESSES.get(name) and _rules_the_node(base, pid)
    ]


CAP_SYS_ADMIN = 21


def _rules_the_node(base: Path, pid: str) -> bool:
    """Whether this process could write other Pods' cgroups: all known owners run privileged. Any user may give a
    process any name, and would switch tuning off with it."""
    found = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", _text(base / "proc" / pid / "status"), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> CAP_SYS_ADMIN & 1)


def _names(base: Path) -> list[tuple[str, str]]:
    try:
        pids = [pid for pid in os.listdir(base / "proc") if pid.isdigit()]
    except OSError:
        return []
    return [(pid, _text(base / "proc" / pid / "comm").strip()) for pid in pids]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
