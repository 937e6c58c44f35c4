"""Simulated nodes that look like real ones, with a truth by construction.

A node has a host (base, drift, steps, cron jobs, boot noise), Pods that are there from the start (per-node Pods and
other system Pods) and Pods that arrive. The node's usage is sampled at 10 Hz with noise and start spikes; each Pod's is
read every 5 s, averaged over 2 s, with 5 % noise, which is what the kernel's counters give; so are the time for which
quotas stop Pods and what Pods get of the CPU, from which the agent makes the host's share.

**The truth.** Room is limit − host − Σ Pods, with the usage that was drawn and not the one that was read; a Pod that
still ramps up counts at its full usage, because it will take it. The next Pod costs the mean of the workloads that
arrive, weighted by the chance with which the simulation draws them; a workload costs its mean over Pods, and over their
life where it leaks; a Pod that sleeps may wake, so a kind of sleepers costs what one takes that is awake. Pod-Capacity
is the minimum over resources of room / cost, at least 0.

**What the interval promises** is another truth: how many of the Pods that really come next fit (`Moment.coming`). They
are drawn as the simulation draws arrivals, each with its own usage, until one resource of the true room is used up; the
last one counts by the part of it that fits, so that on a node with one workload whose Pods are alike both truths agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from carico_agent.core import PodSample
from carico_agent.node.sampling import PodMeasurements
from carico_agent.node.sampling.contention import contention

STEP_S = 0.5
"""How often the true usage is evaluated; readings between repeat it."""
AVERAGED = 4
"""Evaluations that a Pod's reading averages: 2 s."""
POD_NOISE = 0.05
BUSY, THROTTLED_RATIO = (0.6, 1.1, 1.6, 2.6), (0.80, 0.60, 0.56, 0.39)
"""How much of the time a quota stops a busy loop, over what the node's Pods want of its cores: measured on two cores
with 1, 2, 3 and 5 busy loops beside it."""

MAX_COMING = 2000
"""Arrivals drawn at most to find out how many of them fit."""


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload: mean demand in cores, memory as a share of the node, io as a share of the disk."""

    name: str
    cores: float
    memory: float = 0.005
    io: float = 0.0
    spread: float = 0.05
    """Relative standard deviation from Pod to Pod."""
    weight: int = 1
    """Chance to be the next, against the others'."""
    life_s: tuple[float, float] = (120.0, 400.0)
    ramp_s: float = 0.0
    leak_per_s: float = 0.0
    """Growth of memory, as a share of the node."""
    burst: float = 0.0
    """Relative amplitude of a slow wave in its cpu demand."""
    asleep_s: tuple[float, float] = (0.0, 0.0)
    """How long it sleeps before it works."""
    throttled: bool = False
    per_node: bool = False


@dataclass(frozen=True)
class HostSpec:
    base: tuple[float, float] = (0.02, 0.12)
    drift: float = 0.0
    """Amplitude of a slow wave of 10 minutes on the cpu."""
    steps: float = 0.0
    """Height of steps that come and go every few minutes."""
    cron: float = 0.0
    """Height of a job that runs 20 s every two minutes."""
    boot: float = 0.0
    """Noise of the first two minutes."""


@dataclass(frozen=True)
class NodeSpec:
    name: str
    cores: int
    workloads: tuple[WorkloadSpec, ...]
    present: tuple[tuple[WorkloadSpec, int], ...] = ()
    """Workloads there from the start, and how many of each."""
    host: HostSpec = HostSpec()
    fill: float = 0.75
    """Pods arrive while less than this share of the cpu and memory is taken."""
    every_s: float = 12.0
    """Mean time between arrivals."""
    with_io: bool = False
    io_per_pod: bool = True
    quotas_told: bool = True
    """The kernel says for how long quotas stop Pods, and how much of the CPU each got."""
    length_s: float = 1200.0


SYSTEM = WorkloadSpec("kube-system/agent", 0.01, 0.004, per_node=True)
DNS = WorkloadSpec("kube-system/dns", 0.02, 0.006)


def system(count: int) -> tuple[tuple[WorkloadSpec, int], ...]:
    """System Pods: per-node ones, and two that a Deployment owns."""
    return ((SYSTEM, count - 2), (DNS, 2))


@dataclass(frozen=True, slots=True)
class Moment:
    """One sample of a simulated node."""

    t: float
    usage: list[float]
    pods: int
    utilisation: float
    """Busy time of the CPUs."""
    measured: PodMeasurements | None
    """What each Pod uses, where it is read."""
    truth: float
    truths: dict[str, float]
    """The same per workload that arrives."""
    coming: float
    """How many of the next arrivals fit, in the order and with the usage in which they come."""


class _Pod:
    def __init__(self, uid: str, workload: WorkloadSpec, t: float, rng: np.random.Generator, present: bool) -> None:
        self.uid, self.workload, self.since_t = uid, workload, t if not present else t - 1e4
        self.factor = float(np.clip(rng.normal(1, workload.spread), 0.3, 2.0))
        self.wake_t = t + float(rng.uniform(*workload.asleep_s))
        self.end_t = np.inf if present else t + float(rng.uniform(*workload.life_s))
        self.phase = float(rng.uniform(0, 2 * np.pi))
        self.period_s = float(rng.uniform(40, 90))
        self.recent: list[tuple[float, ...]] = []

    def usage(self, t: float, full: bool) -> tuple[float, float, float]:
        """Demand in cores, memory and io; `full`: as if it had ramped up."""
        workload, age_s = self.workload, max(0.0, t - self.since_t)
        ramp = 1.0 if full or not workload.ramp_s else min(1.0, age_s / workload.ramp_s)
        awake = 0.0 if t < self.wake_t else 1.0
        wave = 1 + workload.burst * np.sin(2 * np.pi * t / self.period_s + self.phase)
        memory = workload.memory * self.factor * ramp + workload.leak_per_s * (age_s if age_s < 5e3 else 0.0)
        return (
            workload.cores * self.factor * ramp * awake * wave,
            memory,
            workload.io * self.factor * ramp * awake * wave,
        )


class SimulatedNode:
    """Draws one history of a node; the same seed draws the same."""

    def __init__(self, spec: NodeSpec, seed: int) -> None:
        self.spec = spec
        self.rng = np.random.default_rng(seed)
        self._future = np.random.default_rng((seed, 29))  # its own: what could come next changes no history
        self.resources = ("cpu", "memory", "io") if spec.with_io else ("cpu", "memory")
        self.pods: list[_Pod] = []
        self._made = 0
        self._bag: list[WorkloadSpec] = []
        for workload, count in spec.present:
            for _ in range(count):
                self._start(workload, 0.0, present=True)
        self._arrive_t = float(self.rng.uniform(5, 15))
        self._step, self._step_t, self._boot = 0.0, float(self.rng.uniform(100, 250)), 0.0

    def moments(self) -> Iterator[Moment]:
        host, total, full, spike_t = np.zeros(3), np.zeros(3), np.zeros(3), -1.0
        for tick in range(int(self.spec.length_s * 10)):
            t = tick / 10
            if tick % 5 == 0:
                before = len(self.pods)
                self._come_and_go(t, full + host)
                spike_t = t + 0.2 if len(self.pods) != before else spike_t
                host = self._host(t)
                total, full = self._pods_usage(t)
            truth, truths, coming = float("nan"), {}, float("nan")
            if tick % 10 == 9:
                truth, truths = self._truths(1.0 - host - full)
                coming = self._coming(1.0 - host - full)
            usage, utilisation = self._reading(host + total, 0.3 if t < spike_t else 0.0)
            measured = self._measured(host + total) if tick % 50 == 49 else None
            yield Moment(t, usage, len(self.pods), utilisation, measured, truth, truths, coming)

    def _start(self, workload: WorkloadSpec, t: float, present: bool = False) -> None:
        self._made += 1
        self.pods.append(_Pod(f"pod-{self._made}", workload, t, self.rng, present))

    def _come_and_go(self, t: float, used: np.ndarray) -> None:
        self.pods = [pod for pod in self.pods if pod.end_t > t]
        if t < self._arrive_t:
            return
        self._arrive_t = t + float(self.rng.exponential(self.spec.every_s))
        if max(used) < self.spec.fill:
            self._start(self._draw(), t)

    def _draw(self) -> WorkloadSpec:
        """Workloads come in shuffled rounds, as Deployments are rolled out together."""
        if not self._bag:
            self._bag = self._round(self.rng)
        return self._bag.pop()

    def _round(self, rng: np.random.Generator) -> list[WorkloadSpec]:
        bag = [workload for workload in self.spec.workloads for _ in range(workload.weight)]
        rng.shuffle(bag)  # type: ignore[arg-type]
        return bag

    def _host(self, t: float) -> np.ndarray:
        host = self.spec.host
        cpu = host.base[0] + host.drift * (1 - np.cos(2 * np.pi * t / 600)) / 2
        if t >= self._step_t:
            self._step, self._step_t = host.steps - self._step, t + float(self.rng.uniform(100, 250))
        cpu += self._step
        cpu += host.cron if t % 120 > 100 else 0.0
        if t % 10 == 0:
            self._boot = host.boot * float(self.rng.uniform(0, 1)) if t < 120 else 0.0
        cpu += self._boot
        return np.array([cpu, host.base[1], 0.01 if self.spec.with_io else 0.0])

    def _pods_usage(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """What all Pods use now, and what they will when they have ramped up."""
        total, full, unit = np.zeros(3), np.zeros(3), np.array([1 / (2 * self.spec.cores), 1.0, 1.0])
        for pod in self.pods:
            now = np.array(pod.usage(t, full=False)) * unit
            pod.recent = [*pod.recent[1 - AVERAGED :], tuple(now)]
            total += now
            full += np.array(pod.usage(t, full=True)) * unit if pod.workload.ramp_s else now
        return total, full

    def _reading(self, used: np.ndarray, spike: float) -> tuple[list[float], float]:
        """Usage per resource, and busy time of the CPUs."""
        demand, utilisation = used[0], min(1.0, 2 * used[0])
        if any(pod.workload.throttled for pod in self.pods):  # a throttled Pod waits four fifths of the time
            waiting = max(0.8 - 0.1 * max(0.0, 2 * used[0] - 1), 2 * used[0] - 1)
            demand = (utilisation + contention(waiting, utilisation, self.spec.cores)) / 2
        noise = self.rng.normal(0, (0.012, 0.001, 0.01))
        values = np.clip([demand + spike + noise[0], used[1] + noise[1], used[2] + noise[2]], 0, 1)
        busy = float(np.clip(utilisation + spike + noise[0] * (utilisation < 1), 0, 1))
        return [float(x) for x in values[: len(self.resources)]], busy

    def _measured(self, used: np.ndarray) -> PodMeasurements:
        samples = tuple(self._samples())
        if not self.spec.quotas_told:
            return PodMeasurements(samples)
        wanted_cores = 2 * self.spec.cores * sum(sample.usage[0] for sample in samples)
        got_cores = wanted_cores * min(1.0, 1 / max(2 * float(used[0]), 1e-9))
        throttled = sum(pod.workload.throttled for pod in self.pods)
        return PodMeasurements(samples, got_cores, throttled * float(np.interp(2 * used[0], BUSY, THROTTLED_RATIO)))

    def _samples(self) -> list[PodSample]:
        found = []
        for pod in self.pods:
            mean = np.mean(pod.recent, axis=0) * np.maximum(0.0, self.rng.normal(1, POD_NOISE, 3))
            if not self.spec.io_per_pod:
                mean[2] = np.nan
            usage = tuple(float(x) for x in mean[: len(self.resources)])
            found.append(PodSample(pod.uid, pod.workload.name, usage, pod.workload.per_node))
        return found

    def _truths(self, room: np.ndarray) -> tuple[float, dict[str, float]]:
        costs = {workload.name: self._cost(workload) for workload in self.spec.workloads}
        total = sum(workload.weight for workload in self.spec.workloads)
        expected = sum(
            (workload.weight / total * costs[workload.name] for workload in self.spec.workloads), np.zeros(3)
        )
        return _fits(room, expected), {name: _fits(room, cost) for name, cost in costs.items()}

    def _coming(self, room: np.ndarray) -> float:
        """How many of the next arrivals fit into `room`; the last by the part of it that does."""
        bag, rest, fit = list(self._bag), room, 0
        while fit < MAX_COMING:
            bag = bag or self._round(self._future)
            workload = bag.pop()
            cost = self._cost(workload, float(np.clip(self._future.normal(1, workload.spread), 0.3, 2.0)))
            if np.any(cost > rest):
                return fit + min(1.0, _fits(rest, cost))
            rest, fit = rest - cost, fit + 1
        return float(fit)

    def _cost(self, workload: WorkloadSpec, factor: float = 1.0) -> np.ndarray:
        leaked = workload.leak_per_s * sum(workload.life_s) / 4
        return factor * np.array([workload.cores / (2 * self.spec.cores), workload.memory, workload.io]) + np.array(
            [0, leaked, 0]
        )


def _fits(room: np.ndarray, cost: np.ndarray) -> float:
    used = cost > 0
    return max(0.0, float(np.min(room[used] / cost[used])))
