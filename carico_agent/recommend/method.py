"""The contract of every method, and the registry: a method is a file in `methods` and registers itself.

A method answers for one resource of one container of a workload, from the evidence of all its replicas.
"""

import importlib
import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar, Literal

import numpy as np

from carico_agent.recommend.arima import Variance
from carico_agent.recommend.buckets import CPU_BUCKETS, MEMORY_BUCKETS
from carico_agent.recommend.histogram import DAY_S, DecayingHistogram
from carico_agent.recommend.history import ContainerHistory
from carico_agent.recommend.series import Array
from carico_agent.recommend.vpa import confidence

Resource = Literal["cpu", "memory"]
RESOURCES: tuple[Resource, Resource] = ("cpu", "memory")
LimitRule = Literal["keep", "proportional", "none"]
"""keep: as it is, unless the request passes it; proportional: as many times the request as now; none: dropped."""
MIB = 2**20


@dataclass(frozen=True, slots=True)
class AllowedRange:
    """The least and the most that a container may be told to request [cores or bytes]; VPA's minAllowed, maxAllowed."""

    container: str
    """A pattern: `app`, `istio-*`, `*`."""
    resource: Resource
    least: float = 0.0
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class Options:
    """How to recommend. Shares and margins are ratios (0.9, 0.15)."""

    share: float = 0.9
    margin: float = 0.15
    safety: float = 3.0
    """n of `walk` and `arima`: how many steps of safety, as in equations 5.13 and 5.16 of the source."""
    variance: Variance = "exact"
    horizon: int = 5
    """Minutes that `walk` and `arima` look ahead."""
    guaranteed: bool = False
    whole_cpus: bool = False
    floor_cores: float = 0.025
    floor_bytes: float = 250.0 * MIB
    """Floors are per Pod, and divided by its containers."""
    cpu_limit: LimitRule = "keep"
    memory_limit: LimitRule = "keep"
    allowed: tuple[AllowedRange, ...] = ()

    @property
    def drops_a_limit(self) -> bool:
        """Then a Guaranteed Pod becomes a Burstable one."""
        return "none" in (self.cpu_limit, self.memory_limit)

    def range_of(self, resource: Resource, container: str) -> tuple[float, float]:
        """Of all ranges that name this container, the narrowest.

        >>> Options(allowed=(AllowedRange("a*", "cpu", 0.1), AllowedRange("*", "cpu", most=2.0))).range_of("cpu", "app")
        (0.1, 2.0)
        """
        fitting = [r for r in self.allowed if r.resource == resource and fnmatchcase(container, r.container)]
        return max((r.least for r in fitting), default=0.0), min((r.most for r in fitting), default=math.inf)


@dataclass(frozen=True)
class Evidence:
    """All that is known about one container of a workload: its replicas' histories, added up."""

    cpu: DecayingHistogram
    memory: DecayingHistogram
    tails: dict[Resource, list[Array]]
    """The last run of minutes of each replica, newest last."""
    lowest: dict[Resource, float]
    highest: dict[Resource, float]
    samples: int
    days: float
    """VPA's confidence: days of history, as far as they are filled with samples."""
    startup_bytes: float = 0.0
    startup_cores: float = 0.0
    oom_kills: int = 0
    oom_bytes: float = 0.0
    throttled_ratio: float = 0.0
    dropped: dict[str, int] = field(default_factory=dict)

    def histogram(self, resource: Resource) -> DecayingHistogram:
        return self.cpu if resource == "cpu" else self.memory

    def constant(self, resource: Resource) -> bool:
        low, high = self.lowest[resource], self.highest[resource]
        return self.samples > 0 and 0 <= high - low <= 1e-9 * max(high, 1e-9)


def evidence(histories: Iterable[ContainerHistory]) -> Evidence:
    """Histories of all replicas as one: histograms add up, the worst start, kill and throttling count."""
    known = list(histories)
    half_life_s = known[0].cpu.half_life_s if known else DAY_S
    cpu, memory = DecayingHistogram(CPU_BUCKETS, half_life_s), DecayingHistogram(MEMORY_BUCKETS, half_life_s)
    dropped: dict[str, int] = {}
    for one in known:
        cpu.merge(one.cpu)
        memory.merge(one.memory)
        for reason, count in one.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    samples = sum(one.samples for one in known)
    seen = [one for one in known if one.samples]
    first_s, last_s = min((o.first_s for o in seen), default=0.0), max((o.last_s for o in seen), default=0.0)
    return Evidence(
        cpu,
        memory,
        {"cpu": [o.cpu_tail.values for o in known], "memory": [o.memory_tail.values for o in known]},
        {
            "cpu": min((o.lowest["cpu"] for o in known), default=np.inf),
            "memory": min((o.lowest["memory"] for o in known), default=np.inf),
        },
        {
            "cpu": max((o.highest["cpu"] for o in known), default=0.0),
            "memory": max((o.highest["memory"] for o in known), default=0.0),
        },
        samples,
        confidence(first_s, last_s, samples),
        max((o.startup_bytes for o in known), default=0.0),
        max((o.startup_cores for o in known), default=0.0),
        sum(o.oom_kills for o in known),
        max((o.oom_bytes for o in known), default=0.0),
        max((o.throttled_ratio for o in known), default=0.0),
        dropped,
    )


@dataclass(frozen=True, slots=True)
class ResourceNeed:
    """What one resource needs [cores or bytes], before floors, ceilings and rounding."""

    target: float
    lower: float
    upper: float
    method: str
    """The method that made it: another one than asked for, where that one could not."""
    why: tuple[str, ...] = ()


class Method(ABC):
    """Subclasses with a `name` register themselves."""

    name: ClassVar[str]
    summary: ClassVar[str]
    horizon_s: ClassVar[float]
    """For how long ahead it answers [s]. Below an hour it is no request for a template, which stays for days."""

    def __init_subclass__(cls) -> None:
        METHODS[cls.name] = cls

    @abstractmethod
    def estimate(self, resource: Resource, seen: Evidence, options: Options) -> ResourceNeed:
        """From evidence with at least one sample of that resource."""


TEMPLATE_HORIZON_S = 3600.0


METHODS: dict[str, type[Method]] = {}


def methods() -> dict[str, type[Method]]:
    """All methods by name; every module in `methods` is imported once."""
    from carico_agent.recommend import methods as package

    for _, name, _ in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{name}")
    return dict(sorted(METHODS.items(), key=lambda item: (item[0] != "vpa", item[0])))


def amount(resource: Resource, value: float) -> str:
    """For sentences: 0.350 cores, 120 MiB."""
    return f"{value:.3g} cores" if resource == "cpu" else f"{value / MIB:.4g} MiB"
