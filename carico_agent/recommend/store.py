"""The histories of all containers of a node, as an agent keeps them: counters come in once a minute.

Bounded: at most 660 containers (330 that run and as many that have gone), 5.6 MB; the one that was not seen for longest
goes first. What was not seen for eight days is forgotten. A container is known by its Pod's name and its own; another
`container_id` under the same name is a restart: counters begin anew and what follows is its start.

>>> store = HistoryStore()
>>> store.minute(1.7e9, [Counters("shop", "web-1", "app", "id1", cpu_usage_usec=0, memory_bytes=2**28)])
>>> store.minute(1.7e9 + 60, [Counters("shop", "web-1", "app", "id1", cpu_usage_usec=30_000_000, memory_bytes=2**28)])
>>> store.histories["shop", "web-1", "app"].cpu_tail.values.tolist()
[0.5]
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from carico_agent.recommend.histogram import DAY_S
from carico_agent.recommend.history import BadHistory, ContainerHistory, Sample

MOST_CONTAINERS = 660
VERSION = 1
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Counters:
    """One container as read, counters since its start; None = not known."""

    namespace: str
    pod: str
    container: str
    container_id: str = ""
    cpu_usage_usec: int | None = None
    memory_bytes: int | None = None
    """Working set: memory.current − inactive_file."""
    oom_kills: int | None = None
    nr_periods: int | None = None
    nr_throttled: int | None = None
    kind: str | None = None
    workload: str | None = None
    request_cores: float | None = None
    request_bytes: float | None = None
    limit_cores: float | None = None
    limit_bytes: float | None = None

    @property
    def key(self) -> Key:
        return self.namespace, self.pod, self.container


class HistoryStore:
    """All histories; `minute` is the only command, once a minute."""

    def __init__(self, most: int = MOST_CONTAINERS) -> None:
        self.histories: dict[Key, ContainerHistory] = {}
        self._most = most
        self._last: dict[Key, tuple[float, Counters]] = {}
        self._about: dict[Key, dict[str, Any]] = {}

    def minute(self, time_s: float, seen: Iterable[Counters]) -> None:
        """All containers that run at `time_s` [s since 1970]."""
        last: dict[Key, tuple[float, Counters]] = {}
        for one in seen:
            history = self.histories.pop(one.key, None) or ContainerHistory()
            self.histories[one.key] = history  # to the end: the order is that of last sight
            before = self._last.get(one.key)
            if before is not None and before[1].container_id != one.container_id:
                history.started(time_s)
                before = None
            elif before is None and history.samples == 0 and self._last:
                history.started(time_s)  # new since the last minute, not just since this store began
            history.observe(_sample(time_s, one, before), one.request_bytes or 0.0)
            last[one.key] = (time_s, one)
            self._about[one.key] = _about(one)
        self._last = last
        self._forget(time_s)

    def _forget(self, time_s: float) -> None:
        gone = [key for key, history in self.histories.items() if history.expired(time_s)]
        gone += [key for key in self.histories if key not in gone][
            : max(len(self.histories) - len(gone) - self._most, 0)
        ]
        for key in gone:
            del self.histories[key]
            self._about.pop(key, None)

    def answer(self, node: str, cores: float, memory_bytes: float) -> dict[str, Any]:
        """What GET /v1/history/containers returns (read by app/histories.py)."""
        return {
            "node": node,
            "cores": cores,
            "memory_bytes": memory_bytes,
            "half_life_s": DAY_S,
            "containers": self._rows(),
        }

    def state(self) -> dict[str, Any]:
        """All of it, JSON-able. Counters of the last minute are not kept: what happened meanwhile is unknown."""
        return {"version": VERSION, "containers": self._rows()}

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                "namespace": key[0],
                "pod": key[1],
                "container": key[2],
                **self._about.get(key, {}),
                "history": history.state(),
            }
            for key, history in self.histories.items()
        ]

    @classmethod
    def from_state(cls, state: Mapping[str, Any], most: int = MOST_CONTAINERS) -> "HistoryStore":
        """Continue; BadHistory names the field."""
        made = cls(most)
        if state.get("version") != VERSION:
            raise BadHistory(f"version: {VERSION} is expected, not {state.get('version')!r}")
        rows = state.get("containers")
        if not isinstance(rows, list):
            raise BadHistory("containers: a list is expected")
        for n, row in enumerate(rows[-most:]):
            try:
                key = (str(row["namespace"]), str(row["pod"]), str(row["container"]))
                made.histories[key] = ContainerHistory.from_state(row["history"])
                made._about[key] = {name: row[name] for name in ("kind", "workload", "current") if name in row}
            except (KeyError, TypeError, AttributeError, BadHistory) as error:
                raise BadHistory(f"containers[{n}]: {error}") from error
        return made


def _sample(time_s: float, now: Counters, before: tuple[float, Counters] | None) -> Sample:
    """Rates with the measured time between both readings; a counter that went backwards is unknown, not idle."""
    memory = None if now.memory_bytes is None else float(now.memory_bytes)
    if before is None or time_s <= before[0]:
        return Sample(time_s, None, memory)
    then_s, old = before
    return Sample(
        time_s,
        _rate(old.cpu_usage_usec, now.cpu_usage_usec, time_s - then_s),
        memory,
        _increase(old.oom_kills, now.oom_kills) or 0,
        _increase(old.nr_periods, now.nr_periods) or 0,
        _increase(old.nr_throttled, now.nr_throttled) or 0,
    )


def _rate(before: int | None, after: int | None, elapsed_s: float) -> float | None:
    """Cores; None where the counter does not exist, NaN where it went backwards."""
    if before is None or after is None:
        return None
    return (after - before) / 1e6 / elapsed_s if after >= before else math.nan


def _increase(before: int | None, after: int | None) -> int | None:
    return after - before if before is not None and after is not None and after >= before else None


def _about(one: Counters) -> dict[str, Any]:
    current = {
        name: value
        for name in ("request_cores", "request_bytes", "limit_cores", "limit_bytes")
        if (value := getattr(one, name)) is not None
    }
    named = {"kind": one.kind, "workload": one.workload} if one.workload else {}
    return {**named, "current": current}
