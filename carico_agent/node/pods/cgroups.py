"""Where a container lives in the cgroup tree: v2, v1 and hybrid; systemd and cgroupfs drivers; nested paths.

The way in is a pid: /proc/PID/cgroup names the group in every hierarchy, whichever program made it. From there we climb
to the directory that stands for the whole Pod (`…pod<uid>…`, which the kubelet makes around the containers) or for the
whole container (a name with its id: a systemd inside moves its processes further down). A directory is identified by
its inode, because a group that died and came back under the same name is another one.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from carico_agent.node.pods.pods import Member, Pod

CGROUP_MOUNT = "sys/fs/cgroup"
Wanted = Callable[[str], bool]
V1_CONTROLLERS = ("cpu", "cpuacct", "memory")
POD_DIRECTORY = re.compile(r"(?:^|-)pod([0-9a-fA-F][0-9a-fA-F_-]{7,})(?:\.slice)?$")
"""kubepods-burstable-pod<uid with _>.slice (systemd driver), pod<uid> (cgroupfs driver)"""


@dataclass(frozen=True, slots=True)
class Layout:
    """The mounted hierarchies, relative to the root folder."""

    unified: str = ""
    """Mount of the v2 tree, empty without one."""
    controllers: Mapping[str, str] = field(default_factory=dict)
    """v1 controller -> its mount."""

    @property
    def mode(self) -> Literal["v2", "v1", "hybrid", "none"]:
        if self.controllers:
            return "hybrid" if self.unified else "v1"
        return "v2" if self.unified else "none"

    @property
    def main(self) -> str:
        """The hierarchy that says which groups exist: v2 if it is alone, else the v1 cpu (or memory) tree."""
        for name in V1_CONTROLLERS:
            if name in self.controllers:
                return self.controllers[name]
        return self.unified


def layout(root: Path) -> Layout:
    """Look at the directories, not at a mount table: the same code serves /host and fake trees."""
    mount = root / CGROUP_MOUNT
    if (mount / "cgroup.controllers").exists():
        return Layout(unified=CGROUP_MOUNT)
    try:
        names = sorted(os.listdir(mount))
    except OSError:
        return Layout()
    controllers = {}
    for name in names:
        for controller in name.split(","):  # "cpu,cpuacct" is one mount, "cpu" often a link to it
            if controller in V1_CONTROLLERS and (mount / name).is_dir():
                controllers[controller] = f"{CGROUP_MOUNT}/{name}"
    unified = f"{CGROUP_MOUNT}/unified" if (mount / "unified" / "cgroup.controllers").exists() else ""
    return Layout(unified, controllers)


def parse(text: str) -> dict[str, str]:
    """/proc/PID/cgroup: controller -> path; the v2 tree is the empty name.

    >>> parse("4:memory:/docker/ab\\n1:cpu,cpuacct:/docker/ab\\n0::/x:y\\n")
    {'memory': '/docker/ab', 'cpu': '/docker/ab', 'cpuacct': '/docker/ab', '': '/x:y'}
    """
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            # from another cgroup namespace the path begins with "/..": meaningful only below the host's root
            paths[controller] = re.sub(r"^(/\.\.)+", "", path).removesuffix(" (deleted)") or "/"
    return paths


def parse_started(text: str) -> int:
    """/proc/PID/stat: ticks between boot and the start of the process (field 22; the name may hold anything).

    >>> parse_started("12 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 0 1 0 0 20 0 1 0 4242 1 2")
    4242
    """
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20:
        raise ValueError(f"not /proc/PID/stat: {text[:80]!r}")
    return int(fields[19])


@dataclass(frozen=True, slots=True)
class Group:
    """One cgroup, as its directories in the hierarchies that matter."""

    path: str
    inode: int
    unified: str = ""
    """Its directory in the v2 tree, empty without one."""
    controllers: Mapping[str, str] = field(default_factory=dict)
    """v1 controller -> its directory."""


class Locator:
    """Finds the cgroups of Pods. `root` is the folder with proc/ and sys/ in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layout = layout(root)
        # plain strings below: pathlib takes longer than the kernel, and each new Pod waits for this
        self._proc = f"{root}/proc"
        self._mounts = {name: f"{root}/{mount}" for name, mount in self.layout.controllers.items()}
        if self.layout.unified:
            self._mounts[""] = f"{root}/{self.layout.unified}"

    def find(self, pod: Pod) -> tuple[Group, ...]:
        """The Pod's own group; where there is none around its containers, the group of each. Empty: not found."""
        groups: list[Group] = []
        for member in pod.containers:
            paths = self._paths_of(member.pid)
            if whole := self._group(paths, lambda name: _is_pod(name, pod.uid)):
                return (whole,)
            if own := self._group(paths, partial(_carries, member.id)) or self._group(paths, None):
                groups.append(own)
        return tuple(groups)

    def container(self, pod: Pod, member: Member) -> Group | None:
        """The group of one container of a Pod. None: not found, or it has none of its own."""
        if member.pid:
            paths = self._paths_of(member.pid)
            return self._group(paths, partial(_carries, member.id)) or self._group(paths, None)
        return self._below(pod.cgroup, member.id) if pod.uid else self.at(pod.cgroup)

    def of(self, pid: int) -> Group | None:
        """The group that a process is in. None: it is gone, or in the root group."""
        return self._group(self._paths_of(pid), None)

    def _below(self, path: str, container_id: str) -> Group | None:
        """The group with this id in its name, right below a Pod's."""
        for name, mount in self._mounts.items():
            if name or not self.layout.controllers:
                try:
                    found = next((entry for entry in os.listdir(mount + path) if container_id in entry), None)
                except OSError:
                    continue
                return self.at(f"{path}/{found}") if found else None
        return None

    def at(self, path: str) -> Group | None:
        """The group at this path of every hierarchy, as the tree scan finds it."""
        return self._group(dict.fromkeys(("", *V1_CONTROLLERS), path), None)

    def started_s(self, pid: int) -> float:
        """Wall clock at which a process began [s since 1970]; 0 when it is gone."""
        try:
            ticks = parse_started((self.root / f"proc/{pid}/stat").read_text(errors="surrogateescape"))
            booted = re.search(r"^btime (\d+)", (self.root / "proc/stat").read_text(), re.MULTILINE)
        except (OSError, ValueError):
            return 0.0
        return int(booted[1]) + ticks / os.sysconf("SC_CLK_TCK") if booted else 0.0

    def _paths_of(self, pid: int) -> dict[str, str]:
        try:
            with open(f"{self._proc}/{pid}/cgroup", errors="surrogateescape") as file:  # names are any bytes
                return parse(file.read())
        except (OSError, ValueError):  # the process is gone, or hidden from us
            return {}

    def _group(self, paths: Mapping[str, str], wanted: Wanted | None) -> Group | None:
        """Climb each path to the directory whose name is wanted (None: the path itself) and see what exists."""
        directories, inodes, real = {}, {}, {}
        for name, mount in self._mounts.items():
            path = paths.get(name, "") if wanted is None else _climb(paths.get(name, ""), wanted)
            if path in ("", "/"):  # "/" is the whole node: a process there has no group of its own
                continue
            try:
                inodes[name] = os.stat(mount + path).st_ino
            except OSError:
                continue
            directories[name], real[name] = mount + path, path
        main = next((name for name in (*V1_CONTROLLERS, "") if name in directories), None)
        if main is None:
            return None
        unified = directories.pop("", "")
        return Group(real[main], inodes[main], unified, directories)


def _climb(path: str, wanted: Wanted) -> str:
    """The nearest of the path and its parents with a wanted name, or nothing."""
    while path:
        parent, _, name = path.rpartition("/")
        if name and wanted(name):
            return path
        path = parent
    return ""


def _is_pod(name: str, uid: str) -> bool:
    found = POD_DIRECTORY.search(name)
    return bool(uid) and found is not None and found[1].replace("_", "-") == uid.replace("_", "-")


def _carries(container_id: str, name: str) -> bool:
    return container_id in name
