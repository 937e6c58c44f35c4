"""Plain processes as Pods: on machines without containers, and for `carico demo`. Needs no root.

Three ways to become a Pod: a program registers a process it has started (`register`); a systemd unit whose name matches
(`units`, globs; its cgroup is the Pod's); a running command that matches (`commands`, globs, see commands.py). A
process is its pid and its start time, so a pid that is used again is another Pod.

Why commands are looked for every 10 s only: that means reading stat and cmdline of every process, 25 to 36 µs each; 300
of them once a second would be 0.9 % of a core. And in a thread: 3,000 of them would stop the event loop for 0.1 s.
Registered processes and units are looked at once a second.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from carico_agent.core.workload_names import WORKLOAD_LABEL, workload_of
from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.commands import find_commands, template_of
from carico_agent.node.pods.container_history import ContainerReader
from carico_agent.node.pods.events import Event, EventLog
from carico_agent.node.pods.meter import Open, Readable, open_cgroups
from carico_agent.node.pods.pods import Member, Pod, Selector
from carico_agent.node.pods.process_counters import ProcessCounters, start_ticks
from carico_agent.node.pods.usage import PodUsage

NAMESPACE = "processes"
SCAN_S = 1.0
COMMANDS_S = 10.0
MAX_PODS = 500
DEEPEST = 8
"""Slices within slices: a user's own services are at user.slice/user-1000.slice/user@1000.service/app.slice/."""
NOT_OURS = frozenset({"kubepods.slice"})
"""Without units, and full of cgroups."""


class ProcessRuntime:
    """The Runtime of a machine whose Pods are processes. Attributes may be read from any thread; the methods belong to
    the event loop's."""

    def __init__(
        self,
        units: Sequence[str] = (),
        commands: Sequence[str] = (),
        root: Path = Path("/"),
        churn_s: float = 1.0,
        selector: Selector | None = None,
    ) -> None:
        self.count = 0
        self.churn_until_s = 0.0
        self.source = "processes"
        self.condition = "no process is a Pod yet"
        self.pods: Mapping[str, Pod] = MappingProxyType({})
        self.log = EventLog()
        self._units, self._commands, self._churn_s = tuple(units), tuple(commands), churn_s
        self._selector = selector or Selector()
        self._locator = Locator(root)
        self._proc = f"{str(root).rstrip('/')}/proc"
        self._registered: dict[str, Pod] = {}
        self._by_unit: dict[str, Pod] = {}
        self._by_command: dict[str, Pod] = {}
        self._commands_due_s = 0.0
        self._looked = False
        self._listeners: list[Callable[[Event], None]] = []

    def register(self, pid: int, name: str, workload: str = "") -> str:
        """Count this process as a Pod from now on; returns its key. ProcessLookupError: there is none."""
        ticks = start_ticks(pid, self._proc)
        if ticks is None:
            raise ProcessLookupError(f"process {pid} is not there")
        pod = self._pod(pid, ticks, name, workload)
        if len(self._registered) >= MAX_PODS:
            raise ValueError(f"more than {MAX_PODS} processes registered")
        self._registered[pod.key] = pod
        self._update(time.monotonic(), news=True)
        return pod.key

    def unregister(self, key: str) -> None:
        """It is no Pod any more, whether it still runs or not."""
        if self._registered.pop(key, None) is not None:
            self._update(time.monotonic(), news=True)

    def scan(self) -> None:
        """Scan once: which processes have ended, which units and commands run."""
        self._scan_commands()
        self._scan_the_rest()

    async def run(self) -> None:
        while True:
            if self._commands and time.monotonic() >= self._commands_due_s:
                await asyncio.to_thread(self._scan_commands)
            self._scan_the_rest()
            await asyncio.sleep(SCAN_S)

    def _scan_commands(self) -> None:
        now_s = time.monotonic()
        if self._commands and now_s >= self._commands_due_s:
            self._by_command = {pod.key: pod for pod in self._find_commands()}
            self._commands_due_s = now_s + COMMANDS_S

    def _scan_the_rest(self) -> None:
        for pods in (self._registered, self._by_command):
            for key, pod in tuple(pods.items()):
                if start_ticks(pod.pids[0], self._proc) != _ticks(key):
                    del pods[key]
        if self._units:
            self._by_unit = {pod.key: pod for pod in self._find_units()}
        self._update(time.monotonic(), news=self._looked)
        self._looked = True

    def listen(self, callback: Callable[[Event], None]) -> None:
        self._listeners.append(callback)

    def open_pod(self, io: bool = False) -> Open:
        """How the meter opens these Pods."""
        of_cgroups = open_cgroups(self._locator, io)

        def open_one(pod: Pod) -> Sequence[Readable]:
            if not pod.pids:
                return of_cgroups(pod)
            pid = pod.pids[0]
            return [ProcessCounters(pid, _ticks(pod.key), self._proc, self._locator.of(pid))]

        return open_one

    def container_reader(self) -> ContainerReader:
        """Units have cgroups, plain processes have no history."""
        return ContainerReader(self._locator)

    def read_usage(self, now_s: float) -> Mapping[str, PodUsage]:
        """CPU time and memory of every Pod now. Opened anew each time: clients ask seldom."""
        found = {}
        for key, pod in self.pods.items():
            try:
                opened = self.open_pod()(pod)
                counters = [one.read(now_s) for one in opened]
                for one in opened:
                    one.close()
            except (OSError, ValueError):
                continue
            if counters:
                memory = counters[0].memory_bytes
                found[key] = PodUsage(
                    now_s,
                    counters[0].cpu_usec,
                    memory_current=int(memory) if memory == memory else None,
                    cpu_pressure_usec=counters[0].pressure_usec,
                )
        return found

    def tidy_usage(self, unused: bool) -> None:
        """Nothing is kept open."""

    def _pod(self, pid: int, ticks: int, name: str, workload: str = "") -> Pod:
        return Pod(
            key=f"{pid}-{ticks}",
            name=name,
            namespace=NAMESPACE,
            containers=(Member(str(pid), name, pid),),
            started_s=self._locator.started_s(pid),
            counts=self._selector.counts(NAMESPACE, name),
            workload=workload or workload_of(NAMESPACE, name, {}),
        )

    def _find_units(self) -> Iterator[Pod]:
        """Services and scopes of systemd, by the name of their cgroup."""
        for path in self._unit_paths("", DEEPEST):
            name = path.rpartition("/")[2]
            unit = name.removesuffix(".service")
            if not any(fnmatchcase(name, glob) or fnmatchcase(unit, glob) for glob in self._units):
                continue
            if (group := self._locator.at(path)) is None:
                continue
            known = self.pods.get(path)
            if known is not None and known.inode == group.inode:
                yield known
                continue
            counts = self._selector.counts(NAMESPACE, unit)
            workload = workload_of(NAMESPACE, unit.partition("@")[0], {})
            yield Pod(path, unit, NAMESPACE, counts=counts, cgroup=path, inode=group.inode, workload=workload)

    def _unit_paths(self, below: str, deepest: int) -> Iterator[str]:
        """Instances of template units and users' own units are in slices within slices."""
        try:
            with os.scandir(f"{self._locator.root}/{self._locator.layout.main}{below}") as entries:
                names = [entry.name for entry in entries if entry.is_dir() and entry.name not in NOT_OURS]
        except OSError:
            return
        for name in names:
            if name.endswith((".service", ".scope")):
                yield f"{below}/{name}"
            if deepest and (name.endswith(".slice") or name.startswith("user@")):
                yield from self._unit_paths(f"{below}/{name}", deepest - 1)

    def _find_commands(self) -> Iterator[Pod]:
        for pid, stat, glob in islice(find_commands(self._commands, self._proc), MAX_PODS):
            workload = workload_of(NAMESPACE, "", {WORKLOAD_LABEL: template_of(glob, stat.command)})
            known = self.pods.get(f"{pid}-{stat.started}")
            yield known or self._pod(pid, stat.started, f"{stat.command}-{pid}", workload)

    def _update(self, now_s: float, news: bool) -> None:
        """Publish what is known; a process that came or went is an event, and churn unless we only just began to
        look."""
        before, now = self.pods, {**self._by_unit, **self._by_command, **self._registered}
        if before.keys() == now.keys() and all(before[key].inode == pod.inode for key, pod in now.items()):
            return
        self.pods = MappingProxyType(now)
        self.count = sum(pod.counts for pod in now.values())
        self.condition = f"{len(now)} units and processes counted as Pods"
        if news:
            self.churn_until_s = now_s + self._churn_s
        gone = [pod for key, pod in before.items() if key not in now]
        new = [pod for key, pod in now.items() if key not in before]
        for topic, pods in (("/processes/delete", gone), ("/processes/create", new)):
            for pod in pods:
                self._announce(topic, pod, now_s, news)

    def _announce(self, topic: str, pod: Pod, now_s: float, news: bool) -> None:
        event = Event(time.time(), now_s, topic, pod=pod.key, pod_name=pod.name, pod_namespace=pod.namespace)
        event = replace(event, count=self.count, churn=news, detail={"pid": pod.pids[0]} if pod.pids else {})
        self.log.append(event)
        for callback in self._listeners:
            callback(event)


def _ticks(key: str) -> int:
    return int(key.rpartition("-")[2])
