"""The plugins' view, made from what the runtime knows. Called from plugin threads: looks up new containers' paths, and
has the Pods' counters read, at most once a second.

Why Pods carry the runtime's counters and containers none: a group costs 100 µs to read (five files, measured), and 110
Pods with two containers each have 330 groups: 33 ms a second, seven times what the whole agent may use. A plugin that
wants a container's counters reads them itself (`plugin_api.read_usage`), as seldom as it can.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from carico_agent import plugin_api
from carico_agent.lib.kube.declared import DeclaredPod
from carico_agent.node.plugin_host.facts import read_facts, read_file
from carico_agent.node.pods.cgroups import layout, parse
from carico_agent.node.pods.pods import Member, Pod
from carico_agent.node.pods.usage import PodUsage
from carico_agent.plugin_api import CgroupUsage, ContainerView, Stall, View

FACTS_EVERY_S = 60.0


class ViewMaker:
    """`pods()` and `usage()` are the runtime's, `status()` is what /v1/status says; `root` as in the settings.

    Only a pure cgroup v2 tree is shown: on v1 and hybrid nodes there are no Pods in the view, and plugins refuse.
    """

    def __init__(
        self,
        pods: Callable[[], Mapping[str, Pod]],
        usage: Callable[[], Mapping[str, PodUsage]],
        status: Callable[[], Mapping[str, Any]] = dict,
        root: str = "/",
        declared: Callable[[str], DeclaredPod | None] = lambda uid: None,
    ) -> None:
        """`declared` is what the API server has about the Pod with a UID."""
        self._declared = declared
        self._pods, self._usage, self._status, self._root = pods, usage, status, root.rstrip("/")
        self._v2 = layout(Path(root)).mode == "v2"
        self._mount = f"{self._root}/sys/fs/cgroup"
        self._read = read_file
        self._facts, self._facts_s = read_facts(root, self._mount), time.monotonic()
        self._places: dict[tuple[str, int], tuple[str, int] | None] = {}

    def __call__(self) -> View:
        now_s = time.monotonic()
        if now_s - self._facts_s > FACTS_EVERY_S:
            self._facts, self._facts_s = read_facts(self._root or "/", self._mount), now_s
        pods, usage = (self._pods(), self._usage()) if self._v2 else ({}, {})
        shown = tuple(self._show(pod, usage.get(key)) for key, pod in pods.items() if pod.inode)
        live = {(member.id, member.pid) for pod in pods.values() for member in pod.containers}
        self._places = {key: place for key, place in self._places.items() if key in live}
        return View(now_s, self._facts, shown, self._read, self._status())

    def _show(self, pod: Pod, counters: PodUsage | None) -> plugin_api.PodView:
        members = [self._container(member) for member in pod.containers if not member.sandbox]
        said = self._declared(pod.uid) if pod.uid else None
        return plugin_api.PodView(
            pod.key,
            pod.name,
            pod.namespace,
            pod.uid,
            self._mount + pod.cgroup,
            pod.inode,
            tuple(member for member in members if member),
            usage_of(counters),
            pod.labels,
            memory_request=said.memory_bytes("request") if said else None,
            memory_limit=said.memory_bytes("limit") if said else None,
        )

    def _container(self, member: Member) -> ContainerView | None:
        key = (member.id, member.pid)
        if key not in self._places:
            self._places[key] = self._find(member)
        place = self._places[key]
        return ContainerView(member.id, member.name, *place, member.pid) if place else None

    def _find(self, member: Member) -> tuple[str, int] | None:
        """The container's group: the directory that bears its id, or else where its process is."""
        try:
            with open(f"{self._root}/proc/{member.pid}/cgroup") as file:
                path = parse(file.read()).get("", "/")
            head, found, tail = path.partition(member.id)
            whole = self._mount + (head + found + tail.partition("/")[0] if found else path)
            return (whole, os.stat(whole).st_ino) if path != "/" else None
        except OSError:  # it has just ended
            return None


def usage_of(counters: PodUsage | None) -> CgroupUsage:
    """The runtime's counters in the plugins' words."""
    if counters is None:
        return CgroupUsage()
    stalls = {"cpu": counters.cpu_pressure_usec, "memory": counters.memory_pressure_usec}
    return CgroupUsage(
        counters.cpu_usage_usec,
        counters.nr_periods,
        counters.nr_throttled,
        counters.throttled_usec,
        counters.memory_current,
        {name: Stall(some) for name, some in stalls.items() if some is not None},
        counters.t,
    )
