"""Pods without a container runtime to ask: found by the names of their cgroups.

Known are the kubelet's Pod directories (systemd and cgroupfs drivers), Podman's pods, and the containers of Docker,
containerd, CRI-O and Podman outside of any Pod. Only directories that can hold such names are opened.

The scan opens a handful of directories, not one per Pod: with 110 Pods it takes 0.13 ms (`lab/bench/runtime.py`). It
comes once a second, and as soon as tree_alarm.py says that something changed in one of these directories.
Names that come and go between two scans are missed; with containerd they are not, which is why it is asked first.

A group counts only if the owner of the whole tree made it, which is root, or this agent's own user. Why: systemd hands
each user a part of the tree, and 120 empty folders named like Pods in it closed the node. So an agent of root does not
count what other users run in rootless Podman or Docker (it is part of what the host uses, like their other processes),
and an agent that a user starts counts their containers.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from carico_agent.core.workload_names import UNNAMED, is_per_node, is_service, workload_of
from carico_agent.node.pods.cgroups import POD_DIRECTORY, Layout
from carico_agent.node.pods.container_names import ContainerNames, Described
from carico_agent.node.pods.log_names import LogNames
from carico_agent.node.pods.pods import Pod, Selector

DEPTH = 8
PODMAN_POD = re.compile(r"(?:^|-)libpod_pod_([0-9a-f]{12,64})(?:\.slice)?$")
CONTAINER = re.compile(r"^(?:(?:docker|cri-containerd|crio|libpod|nerdctl)-)?([0-9a-f]{64})(?:\.scope)?$")
HOLDERS = re.compile(
    r"^(?:.*kubepods.*|kubelet(?:\.slice)?|burstable|besteffort|guaranteed|docker|libpod_parent|machine\.slice)$"
)
"""Directories that are there because a runtime runs containers here."""
NOTHING = Described()
PASSAGES = re.compile(r"^(?:system\.slice|user\.slice|user-\d+\.slice|user@\d+\.service)$")
"""Directories that every systemd machine has, and containers may be in."""


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """One scan: Pods by key, and whether the tree looks like one that holds containers."""

    pods: Mapping[str, Pod]
    holders: tuple[str, ...] = ()
    unnamed: str = ""
    """Why Pods are selected that may not be: their names are wanted and not known. Empty: all is well."""


class Scanner:
    """Looks again and again; what was there the last time (same path, same inode) is not worked out anew."""

    def __init__(
        self,
        root: Path,
        layout: Layout,
        namespaces: tuple[str, ...] = (),
        selector: Selector | None = None,
        names: LogNames | None = None,
        node_name: str = "",
    ) -> None:
        """`namespaces`: containerd's, whose names `ctr` uses as top-level directories (/default/<id>). `names`: who
        knows what a Pod is called; the tree itself knows uids only."""
        self._top = str(root / layout.main) if layout.main else ""
        self._namespaces, self._selector = frozenset(namespaces), selector or Selector()
        self._names, self._node_name, self._containers = names, node_name, ContainerNames(root)
        self._known: dict[str, Pod] = {}
        self.entered: list[str] = []
        """Directories that the last scan opened: Pods come and go in these."""
        self._owners = {os.geteuid()}
        if self._top:
            with suppress(OSError):
                self._owners.add(os.stat(self._top).st_uid)

    def scan(self) -> FoundGroup:
        """Look once."""
        pods: dict[str, Pod] = {}
        holders: list[str] = []
        self.entered = []
        if self._top:
            self._enter(self._top, "", DEPTH, pods, holders)
        unnamed = self._name(pods)
        self._name_containers(pods)
        self._known = pods
        return FoundGroup(MappingProxyType({pod.key: pod for pod in pods.values()}), tuple(holders), unnamed)

    def _name(self, pods: dict[str, Pod]) -> str:
        """Names for those that have none yet; says what is wrong if some stay nameless and `pods` selects by name."""
        nameless = {path: pod for path, pod in pods.items() if pod.uid and not pod.namespace}
        if self._names is None or not nameless:
            return ""
        found = self._names.find({pod.uid for pod in nameless.values()})
        for path, pod in nameless.items():
            if pod.uid in found:
                pods[path] = self._made(pod, *found[pod.uid])
        if found.keys() >= {pod.uid for pod in nameless.values()} or self._selector == Selector():
            return ""
        return f"pods.skip_namespaces and pods.skip_names miss some Pods: {self._names.trouble}"

    def _name_containers(self, pods: dict[str, Pod]) -> None:
        """Names for those of which only an id is known."""
        nameless = {
            path: (found[1], f"{self._top}{path}")
            for path, pod in pods.items()
            if pod.workload == UNNAMED and not pod.uid and (found := CONTAINER.search(os.path.basename(path)))
        }
        for path, described in self._containers.find(nameless).items():
            pods[path] = self._made(pods[path], "", described.name or pods[path].name, described)

    def _made(self, pod: Pod, namespace: str, name: str, described: Described = NOTHING) -> Pod:
        labels = described.labels
        return replace(
            pod,
            labels=labels,
            namespace=namespace,
            name=name,
            counts=self._selector.counts(namespace, name),
            workload=workload_of(namespace, name, labels, described.image, self._node_name),
            per_node=is_per_node(name, labels, node_name=self._node_name),
            service=is_service(name, labels),
        )

    def _enter(self, directory: str, path: str, depth: int, pods: dict[str, Pod], holders: list[str]) -> None:
        try:
            entries = os.scandir(directory)
        except OSError:  # gone since it was listed, or not for us
            return
        self.entered.append(directory)
        with entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                here, known = f"{path}/{entry.name}", self._known.get(f"{path}/{entry.name}")
                if known is not None and known.inode == entry.inode():
                    pods[here] = known
                elif pod := self._pod(entry, here):
                    if self._is_trusted(entry):
                        pods[here] = pod
                elif depth and self._leads_on(entry.name, here, holders) and self._is_trusted(entry):
                    self._enter(entry.path, here, depth - 1, pods, holders)

    def _is_trusted(self, entry: "os.DirEntry[str]") -> bool:
        """Whether its owner may make Pods."""
        try:
            return entry.stat(follow_symlinks=False).st_uid in self._owners
        except OSError:  # gone since it was listed
            return False

    def _pod(self, entry: "os.DirEntry[str]", path: str) -> Pod | None:
        name = entry.name
        if found := POD_DIRECTORY.search(name) or PODMAN_POD.search(name):
            key = title = uid = found[1].replace("_", "-")
        elif found := CONTAINER.search(name):
            key, title, uid = path, found[1][:12], ""
        elif path.count("/") == 2 and path.split("/")[1] in self._namespaces:
            key, title, uid = path, name, ""
        else:
            return None
        pod = Pod(key=key, name=title, namespace="", uid=uid, cgroup=path, inode=entry.inode())
        return self._made(pod, "", title)

    def _leads_on(self, name: str, path: str, holders: list[str]) -> bool:
        if HOLDERS.match(name) or (path.count("/") == 1 and name in self._namespaces):
            holders.append(path)
            return True
        return PASSAGES.match(name) is not None
