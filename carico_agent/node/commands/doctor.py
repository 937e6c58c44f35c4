"""check what this node offers, what is missing, and what to do about it

Exit code 1 when a required part is missing; optional parts do not change the exit code.

examples:
  carico doctor
  carico doctor --kubeconfig ~/.kube/config --node worker-1
"""

import argparse
import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from carico_agent.client import AgentClient, AgentError, AgentUnavailable
from carico_agent.command import add_config, load_settings
from carico_agent.settings import Settings, override


@dataclass(frozen=True)
class Finding:
    """One prerequisite. `state`: ok, missing (needed) or optional (useful, but not there)."""

    name: str
    state: str
    says: str
    remedy: str = ""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--socket", metavar="PATH", help="look here for the agent, not at the configured place")
    parser.add_argument("--kubeconfig", metavar="FILE", help="also check whether publishing to Kubernetes would work")
    parser.add_argument("--node", metavar="NAME", help="name of this node there")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    settings = override(settings, "socket", path=given.socket)
    settings = override(settings, "kubernetes", kubeconfig=given.kubeconfig)
    findings = list(examine(override(settings, "node", name=given.node)))
    if given.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{finding.state:8} {finding.name:16} {finding.says}")
            if finding.remedy:
                print(f"{'':8} {'':16} → {finding.remedy}")
    return int(any(finding.state == "missing" for finding in findings))


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything the agent would use."""
    yield _python()
    yield from _kernel(settings)
    yield _cgroups(settings)
    yield _containerd(settings)
    yield _socket(settings.socket_path)
    yield _niceness()
    if settings.kubernetes.enabled or settings.kubernetes.kubeconfig:
        yield from _kubernetes(settings)


def _python() -> Finding:
    return Finding("python", "ok", ".".join(map(str, sys.version_info[:3])))  # pip refuses anything below 3.11


def _kernel(settings: Settings) -> Iterator[Finding]:
    from carico_agent.node.sampling import NodeReader, Root

    reader = NodeReader(Root(settings.node.root), **settings.sampling.optional_signals())
    needed = ("cpu", "memory")
    for signal in dict.fromkeys([*reader.resources, "cpu.pressure", *reader.absent]):
        if signal not in reader.absent:
            yield Finding(signal, "ok", f"{reader.cores} CPUs" if signal == "cpu" else "readable")
        else:
            says, _, remedy = reader.absent[signal].partition(": ")
            yield Finding(signal, "missing" if signal in needed else "optional", f"{says} is absent", remedy)
    reader.close()


def _cgroups(settings: Settings) -> Finding:
    from carico_agent.node.sampling import Root, cgroup_mode

    mode = cgroup_mode(Root(settings.node.root))
    if mode == "v2":
        return Finding("cgroups", "ok", "v2")
    return Finding("cgroups", "optional", mode, "tuning needs cgroup v2: boot with systemd.unified_cgroup_hierarchy=1")


def _containerd(settings: Settings) -> Finding:
    from carico_agent.node.pods.watch import find_socket

    if settings.processes.units or settings.processes.commands:
        return Finding("containerd", "ok", "not used: Pods are the processes named in [processes]")
    found = find_socket(settings) if settings.containerd.enabled else ""
    if not found:
        return Finding(
            "containerd",
            "optional",
            "no socket found: the agent looks for Pods in the cgroup tree",
            "set containerd.socket if it is at another path; without containers, name commands in [processes]",
        )
    if not os.access(found, os.R_OK | os.W_OK):
        return Finding(
            "containerd",
            "optional",
            f"this user may not open {found}: the agent finds Pods in the cgroup tree",
            "run as root, or `carico install --systemd --containerd`",
        )
    return Finding("containerd", "ok", found)


def _socket(path: Path) -> Finding:
    parent = next(folder for folder in [path.parent, *path.parent.parents] if folder.exists())
    if path.exists() and not path.is_socket():
        return Finding("socket", "missing", f"{path} is not a socket", "remove it or set socket.path")
    if path.exists():
        return _listener(path)
    if not os.access(parent, os.W_OK | os.X_OK):
        return Finding("socket", "missing", f"{parent} is not writable", "run as root or set socket.path")
    return Finding("socket", "ok", f"{path}, no agent listens there now")


def _listener(path: Path) -> Finding:
    """Who answers on a socket that is there."""
    try:
        with AgentClient(str(path)) as agent:
            status = agent.status()
    except AgentError as error:  # it lives, and has no number yet
        return Finding("socket", "ok", f"{path}, an agent answers: {error}")
    except AgentUnavailable as error:
        if isinstance(error.__cause__, ConnectionRefusedError):
            return Finding("socket", "ok", f"{path}, left by an agent that has ended; the next one replaces it")
        return Finding("socket", "missing", f"{path} cannot be asked", str(error))
    return Finding("socket", "ok", f"{path}, an agent answers for {status['node']}")


def _niceness() -> Finding:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, before - 1)
        os.setpriority(os.PRIO_PROCESS, 0, before)
    except PermissionError:
        return Finding(
            "niceness",
            "optional",
            "the sampling thread cannot get priority over other threads",
            "give CAP_SYS_NICE if ticks are late on an overloaded node",
        )
    return Finding("niceness", "ok", "the sampling thread can get priority over other threads")


def _kubernetes(settings: Settings) -> Iterator[Finding]:
    """What the agent would meet at the API server."""
    from carico_agent.lib.kubernetes import examine

    node = settings.node.name or os.environ.get("NODE_NAME") or socket.gethostname()
    for name, says, remedy in asyncio.run(examine(settings.kubernetes, node)):
        yield Finding(name, "missing" if remedy else "ok", says, remedy)
