"""The model's parameters, with their units and the reason for their values."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class ModelConfig:
    """How a CapacityModel learns. Its defaults come from training seeds of lab/sim/accuracy.py, checked on others.

    >>> ModelConfig(cores=4).cost_prior(("cpu", "memory"))
    (0.125, 0.0)
    """

    cores: int = 1
    """CPUs of the node; only used for the prior belief that one Pod keeps one core busy."""

    estimator: str = "resource-space"
    """One of the names in carico_agent.core.estimators.ESTIMATORS."""

    limits: Mapping[str, float] = field(default_factory=dict)
    """Usage at which a resource is full, per resource; 1 where not named."""

    service_limits: Mapping[str, float] = field(default_factory=dict)
    """The same while a service runs on the node, for the resources named; they care for waiting before Jobs do."""

    prior_cost: Mapping[str, float] = field(default_factory=dict)
    """Believed cost of one Pod per resource before any was seen; cpu defaults to 1/(2·cores), the others to unknown."""

    max_pods: int | None = None
    """Never claim more slots than this; None for no such limit."""

    batch_s: float = 1.0
    """Length of a batch [s]: the model changes once per batch."""

    forget: float = 0.03
    """Weight of the newest batch in the subspace: the memory is about half a minute long (docs/paper.md)."""

    rank: int | None = None
    """Directions kept in the subspace; None keeps all (m is 2 to 4)."""

    settle_s: float = 1.5
    """Usage is not believed for this long after the number of Pods changed [s]: start spikes take 0.2 s, the Dynamic
    EMA needs about 0.8 s to arrive."""

    halt_max_s: float = 5.0
    """On a node that churns without a pause, learn again after this long [s], trusting each batch less."""

    ema_slow_s: float = 1.0
    """Time constant of the slow smoothing [s]: swallows spikes of container starts and stops."""

    ema_fast_s: float = 0.15
    """Time constant of the fast smoothing [s], once a deviation has proven to last."""

    ema_switch_s: float = 0.3
    """How long a deviation must last in one direction to be believed [s] (*CARICO*, 4.2.2)."""

    ema_band: float = 0.03
    """Deviations within ± this are noise and never switch to fast smoothing."""

    noise_sd: float = 0.01
    """Standard deviation of one batch's mean usage around baseline + cost × Pods, at least."""

    ceiling: float = 0.97
    """From this usage on a resource is saturated: more Pods no longer show, so it teaches only "at least this"."""

    idle_drift_per_s: float = 1e-4
    """Relative growth of the cost while no Pod runs (*CARICO*, 5.9), until the prior is reached again."""

    def limit(self, resource: str, serves: bool = False) -> float:
        """`serves`: a service runs here."""
        limit = float(self.limits.get(resource, 1.0))
        return min(limit, float(self.service_limits.get(resource, 1.0))) if serves else limit

    def cost_prior(self, resources: tuple[str, ...]) -> tuple[float, ...]:
        known = {"cpu": 1 / (2 * self.cores), **self.prior_cost}
        return tuple(float(known.get(name, 0.0)) for name in resources)

    def problems(self, resources: tuple[str, ...]) -> list[str]:
        """What is wrong with these parameters for these resources; empty when nothing is."""
        found = []
        if self.cores < 1:
            found.append(f"cores: {self.cores} is less than 1")
        for table in ("limits", "service_limits", "prior_cost"):
            for name, value in getattr(self, table).items():
                if name not in resources and table != "prior_cost" and name not in KNOWN_RESOURCES:
                    found.append(f"{table}: {name!r} is not one of {', '.join(resources)}")
                if not 0 < value <= 1:
                    found.append(f"{table}[{name!r}]: {value} is not in (0, 1]")
        found += [f"{key}: {getattr(self, key)} must be positive" for key in _POSITIVE if not getattr(self, key) > 0]
        if not 0 < self.forget <= 1:
            found.append(f"forget: {self.forget} is not in (0, 1]")
        return found

    def state(self) -> dict[str, Any]:
        tables = ("limits", "service_limits", "prior_cost")
        return asdict(self) | {name: dict(getattr(self, name)) for name in tables}


KNOWN_RESOURCES = ("cpu", "memory", "io", "network")
_POSITIVE = ("batch_s", "ema_slow_s", "ema_fast_s", "noise_sd", "ceiling", "halt_max_s")
