"""Pods without a container runtime to ask: found by the names of their cgroups.

Known are the kubelet's Pod directories (systemd and cgroupfs drivers), Podman's pods, and the containers of Docker,
containerd, CRI-O and Podman outside of any Pod. Only directories that can hold such names are opened.

Why a scan once a second and not inotify: Python's standard library has no inotify, and the scan opens a handful of
directories, not one per Pod: with 110 Pods it takes about 0.3 ms (`tests/runtime/lab_latency.py`), 0.03 % of a core.
Names that come and go between two scans are missed; with containerd they are not, which is why it is asked first.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from carico_agent.runtime.cgroups import POD_DIRECTORY, Layout
from carico_agent.runtime.pods import Pod, Selector

DEPTH = 8
PODMAN_POD = re.compile(r"(?:^|-)libpod_pod_([0-9a-f]{12,64})(?:\.slice)?$")
CONTAINER = re.compile(r"^(?:(?:docker|cri-containerd|crio|libpod|nerdctl)-)?([0-9a-f]{64})(?:\.scope)?$")
HOLDERS = re.compile(
    r"^(?:.*kubepods.*|kubelet(?:\.slice)?|burstable|besteffort|guaranteed|docker|libpod_parent|machine\.slice)$"
)
"""Directories that are there because somebody runs containers here."""
PASSAGES = re.compile(r"^(?:system\.slice|user\.slice|user-\d+\.slice|user@\d+\.service)$")
"""Directories that every systemd machine has, and containers may be in."""


@dataclass(frozen=True, slots=True)
class Found:
    """One scan: Pods by key, and whether the tree looks like one that holds containers."""

    pods: Mapping[str, Pod]
    holders: tuple[str, ...] = ()


def scan(root: Path, layout: Layout, namespaces: tuple[str, ...] = (), selector: Selector | None = None) -> Found:
    """Look once. `namespaces`: containerd's, whose names `ctr` uses as top-level directories (/default/<id>)."""
    walk = _Walk(selector or Selector(), frozenset(namespaces))
    if layout.main:
        walk.enter(str(root / layout.main), "", DEPTH)
    return Found(walk.pods, tuple(walk.holders))


class _Walk:
    def __init__(self, selector: Selector, namespaces: frozenset[str]) -> None:
        self.pods: dict[str, Pod] = {}
        self.holders: list[str] = []
        self._selector, self._namespaces = selector, namespaces

    def enter(self, directory: str, path: str, depth: int) -> None:
        try:
            entries = os.scandir(directory)
        except OSError:  # gone since it was listed, or not for us
            return
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self._look(entry, f"{path}/{entry.name}", depth)

    def _look(self, entry: "os.DirEntry[str]", path: str, depth: int) -> None:
        name = entry.name
        if found := POD_DIRECTORY.search(name) or PODMAN_POD.search(name):
            uid = found[1].replace("_", "-")
            self._add(uid, uid, path, entry.inode())
        elif found := CONTAINER.search(name):
            self._add(path, found[1][:12], path, entry.inode())
        elif path.count("/") == 2 and path.split("/")[1] in self._namespaces:
            self._add(path, name, path, entry.inode())
        elif depth and (HOLDERS.match(name) or (path.count("/") == 1 and name in self._namespaces)):
            self.holders.append(path)
            self.enter(entry.path, path, depth - 1)
        elif depth and PASSAGES.match(name):
            self.enter(entry.path, path, depth - 1)

    def _add(self, key: str, name: str, path: str, inode: int) -> None:
        # the tree knows no Kubernetes namespace, so only names can be selected
        uid = key if "/" not in key else ""
        counts = self._selector.counts("", name)
        self.pods[key] = Pod(key=key, name=name, namespace="", uid=uid, counts=counts, cgroup=path, inode=inode)
