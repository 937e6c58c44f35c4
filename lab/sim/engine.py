"""One run: jobs meet a scheduler on a cluster. Deterministic per seed; every scheduler meets the same Pods."""

import heapq
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lab.sim.cluster import RUNNING, STEP_S, WAITING, Machine, SimulatedCluster
from lab.sim.schedulers.base import SimulatedScheduler
from lab.sim.workload import DrawnPods, PodBatch, SimulatedWorkload, draw


@dataclass(frozen=True)
class Setup:
    """Everything about a run but the scheduler. Defaults: the paper's cluster (5.1)."""

    nodes: int = 19
    machine: Machine = field(default_factory=Machine)
    sizes: tuple[float, ...] = ()
    """Each node as a multiple of `machine`; none: all are alike."""
    startup_s: tuple[float, float] = (1.0, 4.0)
    """From bound to running (paper 2.3.10: up to 4 s)."""
    binds_per_s: float = 100.0
    notice_s: tuple[float, float] = (0.2, 1.2)
    """From a Pod's start or end to the scheduler's knowing: the kubelet looks once a second."""
    max_s: float = 1500.0
    warm_s: float = 10.0
    """Agents run this long before the jobs come, on idle nodes."""
    rehearsal: tuple[SimulatedWorkload, ...] = ()
    """Before that every node sees bursts of these Pods, placed by hand, up to 1.5 × its cores: no agent begins cold."""
    newcomers: int = 0
    """So many nodes, the last ones, saw none of them."""
    apart: bool = False
    """Each node saw one of these workloads only, in turn."""


@dataclass
class Result:
    """What happened. Times in seconds since the jobs began; the traces have one row per second."""

    scheduler: str
    workloads: list[SimulatedWorkload]
    workload: NDArray[np.int64]
    node: NDArray[np.int64]
    created_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    kills: int
    writes: int
    wall_s: float
    running: NDArray[np.int64]
    assigned: NDArray[np.int64]
    demand: NDArray[np.float64]
    memory: NDArray[np.float64]
    published: NDArray[np.float64]
    machine: Machine = field(default_factory=Machine)
    scheduler_object: SimulatedScheduler | None = None

    @property
    def finished(self) -> bool:
        return bool(np.isfinite(self.end_s).all())

    @property
    def jct_s(self) -> float:
        """Job completion time: from the Job's creation to the end of its last Pod; infinite if it never ends."""
        return float(np.max(self.end_s)) if self.finished else float("inf")

    def pct_s(self, workload: str | None = None) -> NDArray[np.float64]:
        """Pod completion times: from start to end."""
        names = np.array([k.name for k in self.workloads])[self.workload]
        chosen = np.isfinite(self.end_s) & (names == workload if workload else True)
        return (self.end_s - self.start_s)[chosen]

    def overfill_s(self, slots: float, from_s: float = 20.0, longer_than_s: float = 2.0) -> float:
        """Node-seconds spent with more than slots + 1 Pods assigned, in stretches longer than `longer_than_s`."""
        over = self.assigned[int(from_s) :] > slots + 1
        total = 0
        for column in over.T:
            stretch = 0
            for flag in [*column.tolist(), False]:
                if flag:
                    stretch += 1
                else:
                    total += stretch if stretch > longer_than_s else 0
                    stretch = 0
        return float(total)


def run(
    scheduler: SimulatedScheduler,
    jobs: Sequence[PodBatch],
    seed: int,
    setup: Setup | None = None,
    progress: bool = False,
    until_s: float | None = None,
) -> Result:
    """Simulate until every Pod is done, or until `until_s`."""
    s = setup or Setup()
    began = time.perf_counter()
    drawn, noise, choice, delays = (np.random.default_rng([seed, stream]) for stream in range(4))
    workloads, pods = draw(jobs, s.startup_s, drawn)
    measured = len(pods)
    hand: list[Placing] = []
    if s.rehearsal:
        pods, hand, first_s = rehearse(pods, workloads, s, drawn)
        s = replace(s, warm_s=s.warm_s + first_s)
    cluster = SimulatedCluster(s.nodes, s.machine, pods, noise, s.sizes)
    scheduler.begin(cluster, workloads, choice)
    loop = _Loop(scheduler, cluster, s, delays, measured, hand)
    max_s = min(s.max_s, until_s or s.max_s)
    traces: dict[str, list[np.ndarray]] = {name: [] for name in ("running", "assigned", "demand", "memory")}
    published: list[np.ndarray] = []
    steps = round((s.warm_s + max_s) / STEP_S)
    for step in range(steps):
        loop.step()
        if step % 10 == 9 and cluster.t > s.warm_s:
            for name, rows in traces.items():
                rows.append(getattr(cluster, name).copy())
            fleet = getattr(scheduler, "fleet", None)
            published.append(fleet.published.copy() if fleet else np.full(s.nodes, np.nan))
            if progress:
                _bar(cluster, step / steps)
        if loop.done and until_s is None:
            break
    if progress:
        sys.stderr.write("\n")
    since, own = s.warm_s, slice(0, measured)
    return Result(
        scheduler.name,
        workloads,
        pods.workload[own],
        cluster.node[own],
        pods.created_s[own],
        cluster.start_s[own] - since,
        cluster.end_s[own] - since,
        cluster.kills,
        getattr(getattr(scheduler, "fleet", None), "writes", 0),
        time.perf_counter() - began,
        *(np.array(traces[name]) for name in traces),
        np.array(published),
        s.machine,
        scheduler,
    )


BURSTS = 3
Placing = tuple[float, int, int]
"""When [s], which Pod, where."""


def rehearse(
    pods: DrawnPods, workloads: list[SimulatedWorkload], setup: Setup, rng: np.random.Generator
) -> tuple[DrawnPods, list[Placing], float]:
    """Adds the Pods of the rehearsal to the table; returns it, the placings, and how long it takes [s]."""
    cores, hand, now_s, parts = setup.machine.cores, [], 0.0, [pods]
    workloads += [workload for workload in setup.rehearsal if workload not in workloads]
    for turn, workload in enumerate(setup.rehearsal):
        most = max(2, int(1.5 * cores / workload.threads))
        first = sum(map(len, parts))
        placed: list[Placing] = []
        for _ in range(BURSTS):
            for node in range(setup.nodes - setup.newcomers):
                if setup.apart and node % len(setup.rehearsal) != turn:
                    continue
                at_s = now_s + rng.uniform(0, 4)
                placed += [(at_s, 0, node)] * int(rng.integers(1, most + 1))
            alone_s = workload.work_core_s / workload.threads
            now_s += 12 + setup.startup_s[1] + max(alone_s, most * workload.work_core_s / cores)
        hand += [(at_s, first + i, node) for i, (at_s, _, node) in enumerate(placed)]
        _, extra = draw([PodBatch(workload, len(placed), at_s=1e9)], setup.startup_s, rng)
        extra.workload[:] = workloads.index(workload)
        parts.append(extra)
    table = DrawnPods(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(pods)})
    return table, sorted(hand), now_s


class _Loop:
    """Moves Pods from waiting to bound, and notices from the cluster to the scheduler."""

    def __init__(
        self,
        scheduler: SimulatedScheduler,
        cluster: SimulatedCluster,
        setup: Setup,
        rng: np.random.Generator,
        measured: int,
        hand: list[Placing],
    ) -> None:
        self.scheduler, self.cluster, self.setup, self.rng = scheduler, cluster, setup, rng
        self._hand = deque(hand)
        self._queues: list[deque[int]] = [deque() for _ in scheduler.workloads]
        self._next = 0
        self._notices: list[tuple[float, int, int, int, bool]] = []
        self._left = self._measured = measured
        self._budget = 0.0

    @property
    def done(self) -> bool:
        return self._left == 0

    def step(self) -> None:
        started, ended, killed = self.cluster.step()
        self._left -= int((ended < self._measured).sum())
        self._notify_later(started, True)
        self._notify_later(ended, False)
        for pod in killed.tolist():
            self.scheduler.on_ended(pod, int(self.cluster.node[pod]))
            self._queues[self.cluster.pods.workload[pod]].append(pod)
        self._deliver()
        self.scheduler.tick()
        self._arrive()
        self._schedule()

    def _notify_later(self, pods: NDArray[np.int64], start: bool) -> None:
        delays = self.rng.uniform(*self.setup.notice_s, len(pods))
        for pod, delay_s in zip(pods.tolist(), delays.tolist(), strict=True):
            notice = (self.cluster.t + delay_s, pod, int(self.cluster.node[pod]), int(self.cluster.kills), start)
            heapq.heappush(self._notices, notice)

    def _deliver(self) -> None:
        while self._notices and self._notices[0][0] <= self.cluster.t:
            _, pod, node, _, start = heapq.heappop(self._notices)
            if start and self.cluster.phase[pod] != WAITING:
                self.scheduler.on_started(pod, node)
            elif not start:
                self.scheduler.on_ended(pod, node)

    def _arrive(self) -> None:
        table, now_s = self.cluster.pods, self.cluster.t - self.setup.warm_s
        while self._next < len(table) and table.created_s[self._next] <= now_s:
            self._queues[table.workload[self._next]].append(self._next)
            self._next += 1

        while self._hand and self._hand[0][0] <= self.cluster.t:
            _, pod, node = self._hand.popleft()
            self.cluster.bind(pod, node)
            self.scheduler.bound(pod, node)

    def _schedule(self) -> None:
        """Oldest first over all workloads; a workload that fits nowhere waits for the next tick, the others go on."""
        self._budget = min(self._budget + self.setup.binds_per_s * STEP_S, self.setup.binds_per_s)
        open_workloads = [queue for queue in self._queues if queue]
        while open_workloads and self._budget >= 1:
            queue = min(open_workloads, key=lambda q: q[0])
            node = self.scheduler.pick(queue[0])
            if node is None:
                open_workloads.remove(queue)
                continue
            pod = queue.popleft()
            self.cluster.bind(pod, node)
            self.scheduler.bound(pod, node)
            self._budget -= 1
            if not queue:
                open_workloads.remove(queue)


def _bar(cluster: SimulatedCluster, share: float) -> None:
    busy = int((cluster.phase == RUNNING).sum())
    filled = int(30 * share)
    sys.stderr.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] t={cluster.t:6.1f} s  {busy} Pods running ")
    sys.stderr.flush()
