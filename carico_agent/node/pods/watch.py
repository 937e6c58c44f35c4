"""Who is asked: processes where they are configured, else containerd where there is one, else the cgroup tree, else
no source; and what others see of it.

containerd may appear, vanish and come back at any time. While it is away after a connection, its containers go on
running and no new ones can start: the last table stays, and processes that end are taken out of it by looking for
their pids once a second. But who cannot connect cannot know that it is away: a socket that was mounted as a file is
dead after a restart of containerd, which starts Pods all the same. So after some seconds of failed tries Pods that only
the tree has count as well, until containerd answers again. Else the tree is scanned only while containerd reports
nothing, and once before anything else: Pods that run already when the agent starts are no churn, and its first number
must not take them for new ones.
"""

import asyncio
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Protocol

from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.container_history import ContainerReader
from carico_agent.node.pods.container_names import ContainerNames
from carico_agent.node.pods.events import Event, EventLog
from carico_agent.node.pods.log_names import LogNames
from carico_agent.node.pods.meter import Open, open_cgroups
from carico_agent.node.pods.pods import Pod, PodChange, PodTable, Selector
from carico_agent.node.pods.processes import ProcessRuntime
from carico_agent.node.pods.tree import Scanner
from carico_agent.node.pods.tree_alarm import TreeAlarm
from carico_agent.node.pods.usage import PodUsage, UsageReader
from carico_agent.settings import Settings

log = logging.getLogger(__name__)

USUAL_SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",  # k3s and RKE2
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/docker/containerd/containerd.sock",
    "/var/run/docker/containerd/containerd.sock",
)
CHURN_TOPICS = frozenset({"/containers/create", "/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"})
SNAPSHOT = "/carico/snapshot"
SCAN_PERIOD_S = 1.0
EMPTY_PERIOD_S = 5.0
"""Between two looks at a machine that has neither containerd nor a cgroup in which containers could be."""
DOUBT_AFTER_S = 5.0
"""Not connected for so long, containerd may well be running without us; a restart takes a second or two."""
Sleep = Callable[[float], Awaitable[None]]
NO_RUNTIME = "no container runtime found: Pods counted as 0"


class Runtime(Protocol):
    """What the rest of the agent knows about containers. The attributes may be read from any thread."""

    count: int
    churn_until_s: float
    source: str
    condition: str
    pods: Mapping[str, Pod]
    log: EventLog

    def scan(self) -> None: ...
    async def run(self) -> None: ...
    def listen(self, callback: Callable[[Event], None]) -> None: ...
    def read_usage(self, now_s: float) -> Mapping[str, PodUsage]: ...
    def tidy_usage(self, unused: bool) -> None: ...
    def open_pod(self, io: bool = False) -> Open: ...
    def container_reader(self) -> ContainerReader: ...


def discover(settings: Settings, backoff: Backoff | None = None, sleep: Sleep | None = None) -> Runtime:
    """The runtime of this node: processes where some are configured to be Pods, else containers; which of those there
    are it finds out by itself, when run. `sleep` passes the time between two scans of the cgroup tree; None: until it
    changes, at most a second."""
    if settings.processes.units or settings.processes.commands:
        selector = Selector(settings.pods.skip_namespaces, settings.pods.skip_names)
        wanted, root = settings.processes, Path(settings.node.root)
        return ProcessRuntime(wanted.units, wanted.commands, root, settings.churn_s, selector)
    return RuntimeWatch(settings, backoff or Backoff(first_s=0.2, max_s=10.0), sleep)


def find_socket(settings: Settings) -> str:
    """The socket to try: the configured one, else the first of the usual places that exists; else nothing."""
    root = settings.node.root.rstrip("/")
    usual = [f"{prefix}{path}" for path in USUAL_SOCKETS for prefix in dict.fromkeys((root, ""))]
    return next(
        (path for path in ([settings.containerd.socket] if settings.containerd.socket else usual) if _is_socket(path)),
        "",
    )


class RuntimeWatch:
    """The Runtime: one table, filled by the best source that answers."""

    def __init__(self, settings: Settings, backoff: Backoff, sleep: Sleep | None = None) -> None:
        self.count = 0
        self.churn_until_s = 0.0
        self.source = "none"
        self.condition = "starting"
        self.pods: Mapping[str, Pod] = {}
        self.log = EventLog()
        self._settings, self._backoff, self._alarm = settings, backoff, TreeAlarm()
        self._sleep = sleep or self._alarm.sleep
        selector = Selector(settings.pods.skip_namespaces, settings.pods.skip_names)
        node_name = settings.node.name or os.environ.get("NODE_NAME") or socket.gethostname()
        self._table = PodTable(selector, node_name)
        self._locator = Locator(Path(settings.node.root))
        names = LogNames(self._locator.root)
        self._scanner = Scanner(
            self._locator.root, self._locator.layout, settings.containerd.namespaces, selector, names, node_name
        )
        self._usage = UsageReader(self._locator)
        self._usage_lock = threading.Lock()
        self._listeners: list[Callable[[Event], None]] = []
        self._version = ""
        self._logged = ""
        self._looked = self._listed = False
        self._away_s = inf  # since when containerd does not answer
        self._sought: dict[str, tuple[int, ...]] = {}

    def listen(self, callback: Callable[[Event], None]) -> None:
        self._listeners.append(callback)

    def container_reader(self) -> ContainerReader:
        """Who reads this runtime's containers once a minute."""
        return ContainerReader(self._locator)

    def read_usage(self, now_s: float) -> Mapping[str, PodUsage]:
        """The counters of every Pod now, from any thread. A Pod whose cgroup is gone is left out."""
        if not self._settings.pods.usage:
            return {}
        with self._usage_lock:
            return self._usage.read(self.pods, now_s)

    def open_pod(self, io: bool = False) -> Open:
        """How the counters of one Pod are opened, to measure it."""
        return open_cgroups(self._locator, io)

    def tidy_usage(self, unused: bool) -> None:
        """Close the files of Pods that have gone; those of all, when no client asks any more. Never waits."""
        if self._usage_lock.acquire(blocking=False):
            try:
                self._usage.keep({} if unused else self.pods)
            finally:
                self._usage_lock.release()

    def scan(self) -> None:
        """Count once, from the tree: what is there before the first sample."""
        self._scan_tree("")

    async def run(self) -> None:
        failures = 0
        while True:
            path = find_socket(self._settings) if self._settings.containerd.enabled else ""
            if path:
                connected_s = time.monotonic()
                trouble = await self._follow(path)
                failures = 1 if time.monotonic() - connected_s > self._backoff.max_s else failures + 1
                await self._wait(self._backoff.delay_s(failures), trouble)
            else:
                failures = 0
                await self._wait(EMPTY_PERIOD_S, "")

    async def _follow(self, socket: str) -> str:
        """Live on containerd's events until it goes; returns why."""
        # grpc: only where there is a containerd, and loaded beside the event loop. It takes a fifth of a second; under
        # the service's CPU quota in an emulated machine 15 s, in which no client got an answer.
        await asyncio.to_thread(import_module, "carico_agent.node.pods.containerd")
        from carico_agent.node.pods import containerd

        wanted, client = (
            self._settings.containerd,
            containerd.ContainerdClient(socket, ContainerNames(self._locator.root)),
        )
        try:
            self._version = f"containerd {await client.version()} at {socket}"
            session = containerd.Session(
                client,
                self._table,
                wanted.namespaces,
                wanted.topics,
                wanted.resync_s,
                self._on_received,
                self._on_applied,
            )
            await session.run()
        except containerd.Lost as lost:
            return str(lost)
        finally:
            await client.close()
        return ""

    def _on_received(self, change: PodChange, arrived_s: float) -> None:
        if _is_churn(change):
            self._churn(arrived_s)

    def _on_applied(self, change: PodChange | None, arrived_s: float) -> None:
        """The table has changed: count first, everything else after."""
        before, first = self.pods, not self._listed
        if change is None:
            self._listed = True
            self._sought.clear()
            self._away_s = inf
        if self._listed:  # until the first snapshot the table knows less than the tree
            self._show(self._table.pods, self._table.count)
            self._set_condition("containerd", self._version)
        if change is None:
            self._announce_snapshot(before, arrived_s, is_churn=not first)
        else:
            self._announce_change(change, before, arrived_s)
        if self._listed:
            self._place()

    def _announce_change(self, change: PodChange, before: Mapping[str, Pod], arrived_s: float) -> None:
        key = self._table.pod_of(change.ref)
        pod = before.get(key)  # the last event of a Pod still bears its name
        detail = {"pid": change.pid} if change.pid else {}
        self._announce(
            key,
            pod,
            Event(
                change.time_s,
                arrived_s,
                change.topic,
                *change.ref,
                churn=_is_churn(change),
                detail={**detail, "exec": change.process} if change.of_exec else detail,
            ),
        )

    def _announce_snapshot(self, before: Mapping[str, Pod], now_s: float, is_churn: bool) -> None:
        """A snapshot that finds other Pods than were known is churn, too: something came or went without an event. Not
        so the first one: it has the same Pods as the tree, by their right names."""
        if before.keys() != self.pods.keys():
            if is_churn:
                self._churn(now_s)
            detail = {"came": len(self.pods.keys() - before.keys()), "went": len(before.keys() - self.pods.keys())}
            self._announce("", None, Event(time.time(), now_s, SNAPSHOT, churn=is_churn, detail=detail))

    def _place(self) -> None:
        """Find the cgroups of new Pods; one that has none is looked for again at the next snapshot only."""
        for key, pod in self._table.pods.items():
            if pod.inode or self._sought.get(key) == pod.pids:
                continue
            self._sought[key] = pod.pids
            if groups := self._locator.find(pod):
                started_s = 0.0 if pod.started_s else self._locator.started_s(pod.pids[0])
                self._table.place(key, groups[0].path, groups[0].inode, started_s)
        self.pods = self._table.pods

    async def _wait(self, seconds: float, trouble: str) -> None:
        """Pass the time without containerd."""
        until_s = time.monotonic() + seconds
        while True:
            self._scan_tree(trouble)
            left_s = until_s - time.monotonic()
            if left_s < SCAN_PERIOD_S / 2:  # then comes the next try
                return await self._sleep(left_s)
            await self._sleep(EMPTY_PERIOD_S if self.source == "none" else SCAN_PERIOD_S)
            if until_s - time.monotonic() < SCAN_PERIOD_S / 2:
                return None

    def _scan_tree(self, trouble: str) -> None:
        if self._table.pods:
            self._reap_exited()
            self._away_s = min(self._away_s, time.monotonic())
            new = self._add_unlisted() if time.monotonic() - self._away_s >= DOUBT_AFTER_S else 0
            why = f" after {trouble or 'its socket vanished'}" + (
                f"; {new} more Pods in the cgroup tree" if new else ""
            )
            self._set_condition("containerd", "containerd: reconnecting", why)
            return
        found = self._scanner.scan()
        if self._alarm.watch(self._scanner.entered):
            found = self._scanner.scan()
        before = self.pods
        if found.pods != before:  # else the same table stays: others look through a new one
            self._show(found.pods, sum(pod.counts for pod in found.pods.values()))
        self._compare(before, self.pods)
        why = f"; containerd: {trouble}" if trouble else ""
        why += f"; {found.unnamed}" if found.unnamed else ""
        if found.holders or found.pods:
            self._set_condition("cgroups", f"Pods found in the cgroup tree ({self._locator.layout.mode})", why)
        else:
            self._set_condition("none", NO_RUNTIME, why)

    def _add_unlisted(self) -> int:
        """Pods in the tree that the last table does not have; returns how many."""
        listed = self._table.pods
        inodes = {pod.inode for pod in listed.values()}
        found = self._scanner.scan().pods
        new = {key: pod for key, pod in found.items() if key not in listed and pod.inode not in inodes}
        before = {key: pod for key, pod in self.pods.items() if key not in listed}
        self._show({**listed, **new}, self._table.count + sum(pod.counts for pod in new.values()))
        self._compare(before, new)
        return len(new)

    def _reap_exited(self) -> None:
        """containerd is away: take out what has ended meanwhile."""
        now_s = time.monotonic()
        for ref, pid in self._table.live():
            if pid and not (self._locator.root / f"proc/{pid}").exists():
                change = PodChange("/tasks/exit", ref, time.time(), pid)
                key = self._table.pod_of(ref)
                pod = self.pods.get(key)
                self._table.apply(change)
                self._show(self._table.pods, self._table.count)
                self._churn(now_s)
                self._announce(
                    key,
                    pod,
                    Event(
                        change.time_s,
                        now_s,
                        change.topic,
                        *ref,
                        churn=True,
                        detail={"pid": pid, "seen": "the process is gone"},
                    ),
                )

    def _compare(self, before: Mapping[str, Pod], now: Mapping[str, Pod]) -> None:
        """Two scans make events: another inode under the same name is another Pod. What the first finds is no churn."""
        now_s, wall_s, is_churn = time.monotonic(), time.time(), self._looked
        self._looked = True
        gone = [pod for key, pod in before.items() if key not in now or now[key].inode != pod.inode]
        new = [pod for key, pod in now.items() if key not in before or before[key].inode != pod.inode]
        for topic, pods in (("/cgroups/delete", gone), ("/cgroups/create", new)):
            for pod in pods:
                if is_churn:
                    self._churn(now_s)
                self._announce(pod.key, pod, Event(wall_s, now_s, topic, churn=is_churn, detail={"cgroup": pod.cgroup}))

    def _show(self, pods: Mapping[str, Pod], count: int) -> None:
        self.count, self.pods = count, pods

    def _churn(self, now_s: float) -> None:
        self.churn_until_s = now_s + self._settings.churn_s

    def _announce(self, key: str, before: Pod | None, event: Event) -> None:
        pod = self.pods.get(key) or before
        event = replace(
            event,
            pod=key,
            count=self.count,
            pod_name=pod.name if pod else "",
            pod_namespace=pod.namespace if pod else "",
        )
        self.log.append(event)
        for callback in self._listeners:
            callback(event)

    def _set_condition(self, source: str, condition: str, why: str = "") -> None:
        """The log gets a line when the condition changes, not when its reason does."""
        if condition != self._logged:
            log.info("%s%s", condition, why)
        self.source, self.condition, self._logged = source, condition + why, condition


def _is_churn(change: PodChange) -> bool:
    """Containers that come or go; the exec of a probe is neither."""
    return change.topic in CHURN_TOPICS and not change.of_exec


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
