"""A small node for plugin tests: a cgroup tree of ordinary files, Pods in it, and the real writer on top."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from carico_agent.node.plugin_host import cgroupfs
from carico_agent.node.plugin_host.facts import read_file
from carico_agent.node.plugin_host.journal import Journal
from carico_agent.node.plugin_host.write_rate import WriteLimits
from carico_agent.node.plugin_host.writer import CgroupWriter, PluginWriter
from carico_agent.plugin_api import ContainerView, Cpu, NodeInfo, PodView, View, read_usage

EMPTY = {
    "cpuset.cpus": "",
    "cpuset.cpus.effective": "0-3",
    "cgroup.subtree_control": "",
    "cpu.max": "max 100000",
    "cpu.weight": "100",
    "memory.high": "max",
    "memory.low": "0",
    "memory.min": "0",
    "memory.max": "max",
    "memory.reclaim": "",
    "memory.current": "0",
    "memory.stat": "anon 0\nfile 0\ninactive_file 0\npgscan 0\npgsteal 0",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0",
    "cgroup.procs": "",
    "memory.pressure": "some avg10=0.00 total=0\nfull avg10=0.00 total=0",
    "cpu.pressure": "some avg10=0.00 total=0\nfull avg10=0.00 total=0",
    "cpu.stat": "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0",
}


class FakeNode:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "cgroup"
        self.root.mkdir()
        (self.root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        topology = tuple(Cpu(cpu, cpu // 2, 0, 0, 0) for cpu in range(4))
        self.facts = NodeInfo(4, 8 << 30, 1 << 30, 4096, topology, str(self.root))
        self.pods: list[PodView] = []
        self.read = read_file
        self.journal = Journal(folder / "journal", boot="boot")
        self.cgroups = CgroupWriter(
            self.journal, dry_run=False, limits=WriteLimits(rewrite_after_s=0, min_step_ratio=0)
        )
        self.writer = PluginWriter("tested", self.cgroups)

    def group(self, path: str, files: Mapping[str, str] | None = None) -> Path:
        """A cgroup and those above it."""
        folder = self.root / path
        for parent in [*reversed(folder.relative_to(self.root).parents), Path(path)]:
            if parent != Path(".") and not (self.root / parent).exists():
                (self.root / parent).mkdir()
                for key, value in EMPTY.items():
                    (self.root / parent / key).write_text(value + "\n")
        for key, value in (files or {}).items():
            (folder / key).write_text(value + "\n")
        return folder

    def pod(
        self,
        name: str,
        path: str | None = None,
        containers: Mapping[str, Mapping[str, str]] | None = None,
        files: Mapping[str, str] | None = None,
        **fields: object,
    ) -> Path:
        """Add a Pod; its containers become groups below it."""
        folder = self.group(path or f"kubepods.slice/kubepods-burstable.slice/{name}", files)
        members = []
        for inner, inside in (containers or {}).items():
            leaf = self.group(f"{folder.relative_to(self.root)}/{inner}", inside)
            members.append(ContainerView(inner, inner, str(leaf), leaf.stat().st_ino))
        self.pods.append(
            PodView(name, name, "default", f"uid-{name}", str(folder), folder.stat().st_ino, tuple(members), **fields)
        )  # type: ignore[arg-type]
        return folder

    def end(self, name: str) -> None:
        self.pods = [pod for pod in self.pods if pod.name != name]

    def view(self, now_s: float) -> View:
        pods = [replace(pod, usage=read_usage(self.read, pod.cgroup, now_s)) for pod in self.pods]
        return View(now_s, self.facts, tuple(pods), self.read)


@pytest.fixture(autouse=True)
def any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinary folders pass for cgroup2."""
    monkeypatch.setattr(cgroupfs, "is_cgroup2", lambda device: True)


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path)
