"""One cause and one remedy for a Pod that waits for CPU. Pure: numbers in, a sentence out."""

import math
from dataclasses import dataclass
from typing import Literal

from .latency import enough_cores, response_ms, serial_ms
from .window import WindowUsage

Cause = Literal["none", "own quota", "parent's quota", "node contention"]
Remedy = Literal["nothing to do", "raise the limit", "reduce parallelism", "pin whole CPUs"]

SATURATED_RATIO = 0.9
WORTH_RATIO = 1.1


@dataclass(frozen=True, slots=True)
class Quota:
    """cpu.max of one group."""

    quota_ms: float
    period_ms: float

    @property
    def cores(self) -> float:
        return self.quota_ms / self.period_ms


def parse_quota(text: str | None) -> Quota | None:
    """
    >>> parse_quota("50000 100000").cores, parse_quota("max 100000")
    (0.5, None)
    """
    words = (text or "max").split()
    return None if words[0] == "max" else Quota(int(words[0]) / 1000, int(words[1]) / 1000)


@dataclass(frozen=True, slots=True)
class GroupThrottling:
    """One cgroup on the way from the container to the root: what it did lately, and its quota."""

    name: str
    spent: WindowUsage
    quota: Quota | None = None


@dataclass(frozen=True, slots=True)
class ThrottledPod:
    """All that is known about one Pod."""

    own: GroupThrottling
    parents: tuple[GroupThrottling, ...] = ()
    parallel: int | None = None
    """Threads that want a CPU at the same time; None = not known yet."""
    cpus: int = 1
    """CPUs it may use."""
    whole_guaranteed: bool = False
    """Guaranteed, with a whole number of CPUs: could be pinned."""
    request_ms: float | None = None
    tolerable_ratio: float = 0.05
    contention_ratio: float = 0.2


@dataclass(frozen=True, slots=True)
class ThrottlingDiagnosis:
    cause: Cause
    remedy: Remedy
    text: str
    cores: float | None = None
    """With "raise the limit": to how many cores."""
    threads: int | None = None
    """With "reduce parallelism": to how many threads."""


def diagnose(case: ThrottledPod) -> ThrottlingDiagnosis:
    own = case.own
    if own.quota and own.spent.throttled_ratio >= case.tolerable_ratio:
        return _own_quota(case, own.quota)
    worst = max(case.parents, key=lambda g: g.spent.throttled_ratio, default=None)
    if worst and worst.quota and worst.spent.throttled_ratio >= case.tolerable_ratio:
        return _parents_quota(case, worst, worst.quota)
    if own.spent.waiting_ratio >= case.contention_ratio:
        return _contention(case)
    return ThrottlingDiagnosis("none", "nothing to do", f"throttled in {own.spent.throttled_ratio:.0%} of its periods")


def _own_quota(case: ThrottledPod, quota: Quota) -> ThrottlingDiagnosis:
    """Bursts in parallel are cured by less parallelism; a lack of CPU only by more CPU."""
    spent = case.own.spent
    parallel = min(max(case.parallel or 1, 1), case.cpus)
    fewer = max(1, math.floor(quota.cores))
    facts = (
        f"its own limit of {quota.cores:g} CPUs stops it in {spent.throttled_ratio:.0%} of the periods; "
        f"it used {spent.used_cores:.2f} CPUs with {parallel} threads at once{_order(case, quota, parallel)}"
    )
    if spent.used_cores < SATURATED_RATIO * quota.cores and fewer < parallel and _helps(case, quota, fewer):
        if case.whole_guaranteed:
            return ThrottlingDiagnosis(
                "own quota",
                "pin whole CPUs",
                f"{facts}. Pin {fewer} whole CPUs: it then cannot spend its quota early.",
                threads=fewer,
            )
        return ThrottlingDiagnosis(
            "own quota",
            "reduce parallelism",
            f"{facts}. Reduce its parallelism to {fewer} "
            f"(for example GOMAXPROCS={fewer}): the same work, spread over the period.",
            threads=fewer,
        )
    cores = _round_up(max(enough_cores(case.request_ms, quota.period_ms, parallel), quota.cores + 0.1))
    return ThrottlingDiagnosis(
        "own quota", "raise the limit", f"{facts}. Raise the limit to {cores:g} CPUs.", cores=cores
    )


def _order(case: ThrottledPod, quota: Quota, parallel: int) -> str:
    """Side by side or one after the other (figure 5.15), where the size of a request is known and it matters."""
    if case.request_ms is None or parallel < 2:
        return ""
    together = response_ms(case.request_ms, quota.quota_ms, quota.period_ms, parallel)
    serial = serial_ms(case.request_ms, quota.quota_ms, quota.period_ms, parallel)
    if sum(serial) / parallel >= together:
        return ""
    return (
        f". {parallel} requests of {case.request_ms:g} ms take {together:g} ms each side by side; one after the other "
        f"{serial[0]:g} to {serial[-1]:g} ms, {sum(serial) / parallel:g} on average"
    )


def _helps(case: ThrottledPod, quota: Quota, fewer: int) -> bool:
    """Would a request of the given size, run with fewer others, no longer wait?"""
    if quota.cores >= 1:
        return True  # as many threads as whole CPUs in the quota are never throttled: t_q ≥ n·t_p in (1.20)
    request_ms = case.request_ms if case.request_ms is not None else quota.quota_ms
    return response_ms(request_ms, quota.quota_ms, quota.period_ms, fewer) <= WORTH_RATIO * request_ms


def _parents_quota(case: ThrottledPod, parent: GroupThrottling, quota: Quota) -> ThrottlingDiagnosis:
    wanted = max(quota.cores * (1 + parent.spent.throttled_ratio), float(min(case.parallel or 1, case.cpus)))
    cores = _round_up(max(wanted, quota.cores + 0.1))
    return ThrottlingDiagnosis(
        "parent's quota",
        "raise the limit",
        f"not its own limit but that of {parent.name} ({quota.cores:g} CPUs) stops it, in "
        f"{parent.spent.throttled_ratio:.0%} of the periods. Raise that limit to {cores:g} CPUs.",
        cores=cores,
    )


def _contention(case: ThrottledPod) -> ThrottlingDiagnosis:
    return ThrottlingDiagnosis(
        "node contention",
        "pin whole CPUs",
        f"no quota stops it, but it waited for a CPU {case.own.spent.waiting_ratio:.0%} of the time: the "
        "node is too full. Pin whole CPUs for it if it must not wait, or place fewer Pods here.",
    )


def _round_up(cores: float) -> float:
    return math.ceil(cores * 10 - 1e-9) / 10
