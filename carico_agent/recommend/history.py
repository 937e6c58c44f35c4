"""What is kept about one container: two decaying histograms, the last 120 minutes, and what went wrong.

Bounded: 8.5 kB per container whatever happens, 2.8 MB for 330. A minute of 330 containers costs 5.6 ms, 0.01 % of a
core; saving them all costs 140 ms, so that it should happen every ten minutes rather than every one (`python -m
lab.bench.recommend`). Saved and restored as plain JSON; the same history fed one by one,
in bulk, or across a restart gives the same answer.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from carico_agent.recommend.buckets import CPU_BUCKETS, MEMORY_BUCKETS, Buckets
from carico_agent.recommend.histogram import DAY_S, DecayingHistogram
from carico_agent.recommend.series import STEP_S, TAIL, Array, Tail, clean, last_run, rates
from carico_agent.recommend.vpa import CPU_WEIGHT, EXPIRY_S, MemoryPeaks

STARTUP_S = 300.0
"""What is used in the first five minutes is called the start."""
VERSION = 1
_PLAIN = (
    "samples",
    "first_s",
    "last_s",
    "started_s",
    "startup_bytes",
    "startup_cores",
    "oom_kills",
    "oom_bytes",
    "oom_s",
    "periods",
    "throttled",
)
"""Numbers that are saved as they are."""


@dataclass(frozen=True, slots=True)
class MinuteSample:
    """One minute of one container; None = nothing to measure yet, NaN = a reading that went wrong, which is counted.

    `oom_kills`, `periods` and `throttled` are increases.
    """

    t_s: float
    """Time of day [s since 1970]: histories outlive reboots."""
    cpu_cores: float | None = None
    memory_bytes: float | None = None
    """Working set: memory.current − inactive_file."""
    oom_kills: int = 0
    periods: int = 0
    throttled: int = 0


class BadHistory(ValueError):
    """A saved history that cannot be continued; names the field."""


class ContainerHistory:
    """The history of one container (all its restarts)."""

    def __init__(self, half_life_s: float = DAY_S, keep: int = TAIL, step_s: float = STEP_S) -> None:
        self.cpu = DecayingHistogram(CPU_BUCKETS, half_life_s)
        self.memory = DecayingHistogram(MEMORY_BUCKETS, half_life_s)
        self.cpu_tail, self.memory_tail = Tail(step_s, keep), Tail(step_s, keep)
        self.peaks = MemoryPeaks()
        self.dropped: Counter[str] = Counter()
        self.samples = 0
        self.first_s = self.last_s = 0.0
        self.started_s: float | None = None
        """When the container last started, None = before we looked."""
        self.startup_bytes = self.startup_cores = 0.0
        self.lowest = {"cpu": math.inf, "memory": math.inf}
        self.highest = {"cpu": 0.0, "memory": 0.0}
        self.oom_kills = 0
        self.oom_bytes = 0.0
        """The demand that the last OOM kill stands for."""
        self.oom_s = 0.0
        self.periods = self.throttled = 0.0
        """CFS periods of its own quota, and those in which it was stopped; they decay like the histograms."""

    # -- taking ------------------------------------------------------------------------------------------------------

    def started(self, t_s: float) -> None:
        """The container has (re)started: what it uses next is the start."""
        self.started_s = t_s

    def observe(self, sample: MinuteSample, request_bytes: float = 0.0) -> None:
        """One minute. Unknown, negative or older values are dropped and counted."""
        if not math.isfinite(sample.t_s) or (self.samples and sample.t_s <= self.last_s):
            self.dropped["out of order"] += 1
            return
        self._forget_periods(sample.t_s)
        self.periods += max(sample.periods, 0)
        self.throttled += max(sample.throttled, 0)
        self._seen(sample.t_s, 1)
        for _ in range(sample.oom_kills):
            self.oom(sample.t_s, request_bytes)
        cores, used_bytes = self._valid(sample.cpu_cores), self._valid(sample.memory_bytes)
        if cores is not None:
            self.cpu.add(cores, CPU_WEIGHT, sample.t_s)
            self.cpu_tail.push(sample.t_s, cores)
            self._range("cpu", cores, cores)
        if used_bytes is not None:
            self.peaks.usage(self.memory, sample.t_s, used_bytes)
            self.memory_tail.push(sample.t_s, used_bytes)
            self._range("memory", used_bytes, used_bytes)
        if self.started_s is not None and 0 <= sample.t_s - self.started_s <= STARTUP_S:
            self.startup_cores = max(self.startup_cores, cores or 0.0)
            self.startup_bytes = max(self.startup_bytes, used_bytes or 0.0)

    def oom(self, t_s: float, request_bytes: float = 0.0) -> None:
        """An OOM kill at `t_s`."""
        self.oom_kills += 1
        self.oom_bytes = self.peaks.oom(self.memory, t_s, request_bytes)
        self.oom_s = t_s

    def take_cpu(self, t_s: Array, usage_seconds: Array) -> None:
        """In bulk: points of the counter `container_cpu_usage_seconds_total`."""
        t_s, cores, dropped = rates(t_s, usage_seconds)
        self.dropped += dropped
        if not cores.size:
            return
        self.cpu.add_many(cores, CPU_WEIGHT, t_s)
        self.cpu_tail.load(last_run(t_s, cores, self.cpu_tail.step_s, self.cpu_tail.keep), float(t_s[-1]))
        self._bulk("cpu", t_s, cores)

    def take_memory(self, t_s: Array, used_bytes: Array) -> None:
        """In bulk: points of the gauge `container_memory_working_set_bytes`."""
        t_s, used_bytes, dropped = clean(t_s, used_bytes)
        self.dropped += dropped
        if not used_bytes.size:
            return
        windows = np.floor((t_s - t_s[0]) / self.peaks.interval_s)
        for window in np.unique(windows):
            inside = windows == window
            self.peaks.usage(self.memory, float(t_s[inside][0]), float(used_bytes[inside].max()))
        tail = self.memory_tail
        tail.load(last_run(t_s, used_bytes, tail.step_s, tail.keep), float(t_s[-1]))
        self._bulk("memory", t_s, used_bytes)

    def _bulk(self, resource: str, t_s: Array, values: Array) -> None:
        self._range(resource, float(values.min()), float(values.max()))
        if self.started_s is not None:
            early = values[(t_s >= self.started_s) & (t_s <= self.started_s + STARTUP_S)]
            if early.size and resource == "memory":
                self.startup_bytes = max(self.startup_bytes, float(early.max()))
            elif early.size:
                self.startup_cores = max(self.startup_cores, float(early.max()))
        first_s = float(t_s[0])
        self.first_s = min(self.first_s, first_s) if self.samples else first_s
        self.last_s = max(self.last_s, float(t_s[-1]))
        self.samples = max(self.samples, int(values.size))

    def _seen(self, t_s: float, count: int) -> None:
        self.first_s = t_s if not self.samples else self.first_s
        self.last_s = t_s
        self.samples += count

    def _valid(self, value: float | None) -> float | None:
        """The value, or None after counting what is wrong with it."""
        if value is None:
            return None
        if not math.isfinite(value):
            self.dropped["unknown"] += 1
        elif value < 0:
            self.dropped["negative"] += 1
        else:
            return value
        return None

    def _range(self, resource: str, low: float, high: float) -> None:
        self.lowest[resource] = min(self.lowest[resource], low)
        self.highest[resource] = max(self.highest[resource], high)

    def _forget_periods(self, t_s: float) -> None:
        if self.samples and self.periods:
            factor = 2.0 ** (-(t_s - self.last_s) / self.cpu.half_life_s)
            self.periods *= factor
            self.throttled *= factor

    # -- asking ------------------------------------------------------------------------------------------------------

    @property
    def throttled_ratio(self) -> float:
        return min(self.throttled / self.periods, 1.0) if self.periods > 0 else 0.0

    def expired(self, now_s: float) -> bool:
        """Not seen for eight days."""
        return now_s - self.last_s > EXPIRY_S

    # -- saving ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All of it, JSON-able; unknown numbers are None."""
        return {
            "version": VERSION,
            **{name: getattr(self, name) for name in _PLAIN},
            "cpu": _histogram_state(self.cpu),
            "memory": _histogram_state(self.memory),
            "cpu_tail": _tail_state(self.cpu_tail),
            "memory_tail": _tail_state(self.memory_tail),
            "peaks": [self.peaks.window_end_s, self.peaks.usage_peak_bytes, self.peaks.oom_peak_bytes],
            "lowest": {key: value if math.isfinite(value) else None for key, value in self.lowest.items()},
            "highest": dict(self.highest),
            "dropped": dict(self.dropped),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], half_life_s: float = DAY_S) -> "ContainerHistory":
        """Continue from `state()`; BadHistory names the field that is wrong."""
        made, field = cls(half_life_s), "version"
        try:
            if state[field] != VERSION:
                raise ValueError(f"{VERSION} is expected, not {state[field]!r}")
            for field in _PLAIN:
                setattr(made, field, _number(state[field], allow_none=field == "started_s"))
            made.samples, made.oom_kills = int(made.samples), int(made.oom_kills)
            field = "cpu"
            made.cpu = _load_histogram(state["cpu"], CPU_BUCKETS, half_life_s)
            field = "memory"
            made.memory = _load_histogram(state["memory"], MEMORY_BUCKETS, half_life_s)
            for field, tail in (("cpu_tail", made.cpu_tail), ("memory_tail", made.memory_tail)):
                last_s, values = state[field]["last_s"], [_number(value) for value in state[field]["values"]]
                tail.load(np.array(values), None if last_s is None else _number(last_s))
            field = "peaks"
            end_s, usage, oom = state["peaks"]
            made.peaks = MemoryPeaks(DAY_S, None if end_s is None else _number(end_s), _number(usage), _number(oom))
            field = "lowest"
            made.lowest = {k: math.inf if state[field][k] is None else _number(state[field][k]) for k in made.lowest}
            field = "highest"
            made.highest = {key: _number(state[field][key]) for key in made.highest}
            field = "dropped"
            made.dropped = Counter({str(key): int(_number(value)) for key, value in dict(state[field]).items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadHistory(f"{field}: {error if str(error) else 'missing'}") from error
        return made


def _number(value: Any, allow_none: bool = False) -> Any:
    if value is None and allow_none:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ValueError(f"a number of 0 or more is expected, not {value!r}")
    return value


def _histogram_state(histogram: DecayingHistogram) -> dict[str, Any]:
    weights = {str(n): float(w) for n, w in enumerate(histogram.weights) if w}
    return {"reference_s": histogram.reference_s, "total": histogram.total, "weights": weights}


def _load_histogram(state: Any, buckets: Buckets, half_life_s: float) -> DecayingHistogram:
    made = DecayingHistogram(buckets, half_life_s, _number(state["reference_s"]), _number(state["total"]))
    for key, weight in state["weights"].items():
        if not 0 <= int(key) < buckets.count:
            raise ValueError(f"bucket {key} is not one of 0 to {buckets.count - 1}")
        made.weights[int(key)] = _number(weight)
    return made


def _tail_state(tail: Tail) -> dict[str, Any]:
    return {"last_s": tail.last_s, "values": tail.values.tolist()}
