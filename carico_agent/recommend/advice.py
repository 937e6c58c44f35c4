"""From an estimate to a recommendation: what a method cannot know is added here, and every step says why.

A method sees usage only. A container that was killed, throttled or that needs more while it starts used less than it
wanted; a request beyond the largest node is never scheduled. Order: method, then OOM kills, start-up, throttling,
guaranteed, floors, allowed range, whole CPUs, largest node, rounding (1m and 1 MiB, upwards).

The QoS class stays as it is: the API server refuses a resize that changes it. A Guaranteed Pod's limits follow its
requests, a Burstable Pod's never become equal to all of them. Only --guaranteed and a dropped limit ask for another.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from carico_agent.recommend.history import ContainerHistory
from carico_agent.recommend.method import (
    MIB,
    RESOURCES,
    Evidence,
    Options,
    Resource,
    ResourceNeed,
    amount,
    evidence,
    methods,
)
from carico_agent.recommend.vpa import UPPER_SHARE
from carico_agent.recommend.workload import GUARANTEED, UNKNOWN, NodeSize, OwnerObject, Resources

MIN_POINTS = 100
DEFAULTS = Options()
THROTTLED_RATIO = 0.05
"""Below this share of its periods being stopped is nothing to worry about."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One resource of one container [cores or bytes]; request None is "?", and `why` says why."""

    request: float | None
    why: tuple[str, ...]
    method: str = "none"
    limit: float | None = None
    """A limit that must change with the request; None = leave it."""
    drop_limit: bool = False
    lower: float | None = None
    upper: float | None = None
    current_request: float | None = None
    current_limit: float | None = None

    @property
    def equal(self) -> bool:
        """Whether the limit is the request, once this is applied."""
        request = self.current_request if self.request is None else self.request
        return (
            not self.drop_limit
            and request is not None
            and request == (self.current_limit if self.limit is None else self.limit)
        )


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What one container of a workload should request."""

    workload: OwnerObject
    container: str
    pods: tuple[str, ...]
    cpu: Advice
    memory: Advice
    samples: int
    confidence_days: float
    throttled_ratio: float
    oom_kills: int
    qos: str = ""
    """Of its Pods now; empty: not known."""
    replicas: int = 1
    """How many Pods of it run."""
    horizon_s: float = 0.0
    """For how long ahead the method answers [s]."""
    guaranteed: tuple[float | None, float | None] = (None, None)
    """What it would request as a Guaranteed Pod: cores and bytes."""
    hpa: str = ""
    """A HorizontalPodAutoscaler that scales by these requests."""
    sidecar: bool = False
    """It stands among the init containers, with restartPolicy Always."""

    @property
    def confidence(self) -> str:
        return "low" if self.confidence_days < 1 else "medium" if self.confidence_days < 7 else "high"


def advise(
    workload: OwnerObject,
    container: str,
    pods: tuple[str, ...],
    histories: Iterable[ContainerHistory],
    current: Resources = UNKNOWN,
    method: str = "vpa",
    options: Options = DEFAULTS,
    largest: NodeSize | None = None,
    containers: int = 1,
    replicas: int = 0,
) -> Recommendation:
    """`containers`: how many the Pod has; they share the Pod's floors. `replicas` 0: as many as `pods`."""
    seen = evidence(histories)

    def made(how: Options) -> tuple[Advice, Advice]:
        cpu, memory = (
            _ResourceAdvice(resource, container, seen, current, how, largest, containers).advice(method)
            for resource in RESOURCES
        )
        return cpu, memory

    cpu, memory = made(options)
    if not (options.guaranteed or (current.guaranteed and not options.drops_a_limit)):
        cpu = _kept_burstable(cpu, memory)
    fixed = made(replace(options, guaranteed=True, cpu_limit="keep", memory_limit="keep"))
    return Recommendation(
        workload,
        container,
        pods,
        cpu,
        memory,
        seen.samples,
        seen.days,
        seen.throttled_ratio,
        seen.oom_kills,
        current.qos or (GUARANTEED if current.guaranteed else ""),
        replicas or max(len(pods), 1),
        methods()[method].horizon_s,
        (fixed[0].request, fixed[1].request),
    )


def _kept_burstable(cpu: Advice, memory: Advice) -> Advice:
    """The CPU's advice, with a limit just above the request where the container would become a Guaranteed Pod's."""
    if cpu.request is None or not (cpu.equal and memory.equal):
        return cpu
    why = f"the limit is 1m above the request: with limits equal to requests the Pod would be {GUARANTEED}"
    return replace(cpu, limit=round(cpu.request + 0.001, 3), why=(*cpu.why, why))


class _ResourceAdvice:
    """The way of one resource from estimate to advice; `value` only ever changes with a reason."""

    def __init__(
        self,
        resource: Resource,
        container: str,
        seen: Evidence,
        current: Resources,
        options: Options,
        largest: NodeSize | None,
        containers: int,
    ) -> None:
        self.resource, self.seen, self.options, self.containers = resource, seen, options, max(containers, 1)
        cpu = resource == "cpu"
        self.request = current.request_cores if cpu else current.request_bytes
        self.limit = current.limit_cores if cpu else current.limit_bytes
        self.floor = options.floor_cores if cpu else options.floor_bytes
        self.most = None if largest is None else largest.cores if cpu else largest.memory_bytes
        self.guaranteed = options.guaranteed or (current.guaranteed and not options.drops_a_limit)
        self.rule = options.cpu_limit if cpu else options.memory_limit
        self.least, self.max_allowed = options.range_of(resource, container)
        self.why: list[str] = []
        self.value = 0.0

    def advice(self, method: str) -> Advice:
        if reason := self._too_little():
            return Advice(None, (reason,), current_request=self.request, current_limit=self.limit)
        made = self._estimate(method)
        self.value, self.why = made.target, list(made.why)
        if self.resource == "memory":
            self._killed()
            self._startup()
        else:
            self._startup_cpu()
            self._throttled()
        if self.guaranteed:
            self._guaranteed()
        self._floor()
        self._allowed()
        if self.resource == "cpu" and self.options.whole_cpus:
            self._whole()
        self._largest()
        request = self._round(self.value)
        limit = self._limit(request)
        dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(self.seen.dropped.items()))
        if dropped:
            self.why.append(f"points dropped: {dropped}")
        return Advice(
            request,
            tuple(self.why),
            made.method,
            limit,
            self.rule == "none" and self.limit is not None,
            min(self._round(made.lower), request),
            self._upper(made.upper, request),
            self.request,
            self.limit,
        )

    def _too_little(self) -> str | None:
        if self.seen.samples < MIN_POINTS:
            return f"samples so far: {self.seen.samples}; {MIN_POINTS} are needed, and there is one per minute"
        if self.seen.histogram(self.resource).empty and not any(t.size for t in self.seen.tails[self.resource]):
            return f"no sample of {self.resource}"
        return None

    def _estimate(self, method: str) -> ResourceNeed:
        if self.seen.constant(self.resource):
            value = self.seen.highest[self.resource]
            factor = 1 + self.options.margin
            cause = f"constant: {amount(self.resource, value)} in all samples, plus {self.options.margin:.0%}"
            return ResourceNeed(value * factor, value, value * factor, "constant", (cause,))
        return methods()[method]().estimate(self.resource, self.seen, self.options)

    def _raise(self, value: float, why: str) -> None:
        if value > self.value:
            self.value = value
            self.why.append(why)

    def _killed(self) -> None:
        if self.seen.oom_kills:
            bump = amount(self.resource, self.seen.oom_bytes)
            times = "once" if self.seen.oom_kills == 1 else f"{self.seen.oom_kills} times"
            if self.seen.oom_bytes > self.value:
                self._raise(self.seen.oom_bytes, f"OOM-killed {times}: raised to {bump} (used + 20 % or 100 MiB)")
            else:
                self.why.append(f"OOM-killed {times}; {bump} assumed as its demand then is covered")

    def _startup(self) -> None:
        need = self.seen.startup_bytes * (1 + self.options.margin)
        peak = amount(self.resource, self.seen.startup_bytes)
        self._raise(
            need, f"start-up peak of {peak}, plus {self.options.margin:.0%}: less would be killed at the next start"
        )

    def _startup_cpu(self) -> None:
        if self.seen.startup_cores > self.value:
            self.why.append(
                f"starting takes {amount('cpu', self.seen.startup_cores)}; not requested, a start is slower without"
            )

    def _throttled(self) -> None:
        ratio = self.seen.throttled_ratio
        if ratio < THROTTLED_RATIO:
            return
        if self.limit is None:
            self.why.append(f"throttled by a quota in {ratio:.0%} of its periods: its usage is cut off there")
            return
        cause = f"throttled by its own quota of {amount('cpu', self.limit)} in {ratio:.0%} of its periods"
        if self.limit * (1 + ratio) > self.value:
            self._raise(
                self.limit * (1 + ratio), f"{cause}: its usage is cut off there, so {1 + ratio:.2f} times the quota"
            )
        else:
            self.why.append(f"{cause}; the request is above that quota now")

    def _guaranteed(self) -> None:
        factor = 1 + self.options.margin
        if self.resource == "cpu":
            share = max(UPPER_SHARE, self.options.share)
            self._raise(
                self.seen.cpu.percentile(share) * factor,
                f"guaranteed: the request is a limit as well, so p{100 * share:g} plus {self.options.margin:.0%}",
            )
        else:
            self._raise(
                self.seen.highest["memory"] * factor,
                f"guaranteed: the request is a limit as well, so the highest ever seen plus {self.options.margin:.0%}",
            )

    def _floor(self) -> None:
        floor = self.floor / self.containers
        shared = f" shared by {self.containers} containers" if self.containers > 1 else ""
        self._raise(floor, f"the floor of {amount(self.resource, self.floor)} per Pod{shared}")

    def _allowed(self) -> None:
        self._raise(self.least, f"the least allowed for this container, {amount(self.resource, self.least)}")
        if self.value > self.max_allowed:
            cut = amount(self.resource, self.max_allowed)
            self.why.append(
                f"cut from {amount(self.resource, self.value)} to the most allowed for this container, {cut}"
            )
            self.value = self.max_allowed

    def _whole(self) -> None:
        if not self.guaranteed:
            self.why.append("not rounded to whole CPUs, which only Guaranteed Pods can be pinned to (--guaranteed)")
            return
        whole = math.ceil(self.value - 1e-9)
        self._raise(float(whole), f"rounded up to {whole} whole CPUs")

    @property
    def _pinned(self) -> bool:
        return self.resource == "cpu" and self.options.whole_cpus and self.guaranteed

    def _largest(self) -> None:
        if self.most is None or self._round(self.value) <= self.most:
            return
        cut = float(math.floor(self.most)) if self._pinned else self.most
        self.why.append(
            f"cut from {amount(self.resource, self.value)} to the largest node, {amount(self.resource, cut)}: "
            "more is never scheduled"
        )
        self.value = self._down(cut)

    def _upper(self, upper: float, request: float) -> float | None:
        """Never above the largest node either; None when there is no bound."""
        if self.most is not None and upper > self.most:
            return max(self._down(self.most), request)
        return max(self._round(upper), request) if math.isfinite(upper) else None

    def _limit(self, request: float) -> float | None:
        if self.guaranteed:
            return request
        if self.rule == "none":
            if self.limit is not None:
                self.why.append(f"its limit of {amount(self.resource, self.limit)} is dropped, as asked")
            return None
        if self.rule == "proportional" and self.limit and self.request:
            times = self.limit / self.request
            self.why.append(f"its limit stays {times:.3g} times the request")
            return self._round(request * times)
        if self.limit is not None and self.limit < request:
            self.why.append(f"its limit of {amount(self.resource, self.limit)} is below the request and moves with it")
            return request
        return None

    def _down(self, value: float) -> float:
        """Downwards to 1m or 1 MiB: what a node offers."""
        if self.resource == "cpu":
            return math.floor(value * 1000 + 1e-6) / 1000
        return float(math.floor(value / MIB + 1e-6) * MIB)

    def _round(self, value: float) -> float:
        """Upwards to 1m or 1 MiB."""
        if not math.isfinite(value):
            return value
        if self.resource == "cpu":
            return math.ceil(value * 1000 - 1e-6) / 1000
        return float(math.ceil(value / MIB - 1e-6) * MIB)
