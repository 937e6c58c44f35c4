"""Pods as `carico top` shows them: rows from /v1/pods, with cores between two answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ScreenPod:
    """One Pod; None where its counters cannot be read."""

    name: str
    workload: str
    cores: float | None
    memory_bytes: float | None


class PodRates:
    """Rows from /v1/pods: CPU time becomes cores between two answers."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}
        self._cores: dict[str, float] = {}

    def rows(self, bodies: Sequence[Mapping[str, Any]]) -> list[ScreenPod]:
        now, rows = {}, []
        for body in bodies:
            name, usage = f"{body['namespace']}/{body['name']}", body.get("usage") or {}
            key = f"{name} {body.get('uid')} {body.get('started')} {body.get('cgroup')}"
            if usage.get("cpu_usage_usec") is not None and usage.get("t") is not None:
                now[key] = float(usage["t"]), float(usage["cpu_usage_usec"])
            rows.append(
                ScreenPod(name, body.get("workload", ""), self._rate(key, now.get(key)), usage.get("memory_current"))
            )
        self._before = now
        self._cores = {key: cores for key, cores in self._cores.items() if key in now}
        return rows

    def _rate(self, key: str, now: tuple[float, float] | None) -> float | None:
        """The same reading again, when two answers come within a second: the rate of before."""
        before = self._before.get(key)
        if now is not None and before is not None and now[0] > before[0]:
            self._cores[key] = max(0.0, now[1] - before[1]) / 1e6 / (now[0] - before[0])
        return self._cores.get(key) if now is not None else None
