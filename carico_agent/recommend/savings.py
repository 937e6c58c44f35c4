"""What a recommendation would change in total: requests that are freed or added, and how urgent that is. Pure.

Severities and their thresholds are those that users of KRR know: a difference of half a core or 500 MB is critical, of
a quarter or 250 MB a warning, of 0.1 or 100 MB ok, below that good.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from carico_agent.recommend.advice import Advice, Recommendation

SEVERITIES = ("critical", "warning", "ok", "good", "unknown")
_STEPS = {"cpu": (0.5, 0.25, 0.1), "memory": (500e6, 250e6, 100e6)}


@dataclass(frozen=True, slots=True)
class Savings:
    """Requests of all Pods together; a saving below zero is what has to be added."""

    current_cores: float = 0.0
    recommended_cores: float = 0.0
    current_bytes: float = 0.0
    recommended_bytes: float = 0.0
    unknown: int = 0
    """Containers that are not counted: without a recommendation, or with no request now."""

    @property
    def saved_cores(self) -> float:
        return self.current_cores - self.recommended_cores

    @property
    def saved_bytes(self) -> float:
        return self.current_bytes - self.recommended_bytes

    def __add__(self, other: "Savings") -> "Savings":
        return Savings(
            self.current_cores + other.current_cores,
            self.recommended_cores + other.recommended_cores,
            self.current_bytes + other.current_bytes,
            self.recommended_bytes + other.recommended_bytes,
            self.unknown + other.unknown,
        )


def savings(row: Recommendation) -> Savings:
    """Of all its replicas."""
    cores = _pair(row.cpu, row.replicas)
    size = _pair(row.memory, row.replicas)
    return Savings(*(cores or (0.0, 0.0)), *(size or (0.0, 0.0)), int(cores is None or size is None))


def total(rows: Iterable[Recommendation]) -> Savings:
    return sum((savings(row) for row in rows), Savings())


def _pair(advice: Advice, replicas: int) -> tuple[float, float] | None:
    if advice.request is None or advice.current_request is None:
        return None
    return advice.current_request * replicas, advice.request * replicas


def severity(row: Recommendation) -> str:
    """The worse of both resources."""
    return min((_severity("cpu", row.cpu), _severity("memory", row.memory)), key=SEVERITIES.index)


def _severity(resource: str, advice: Advice) -> str:
    if advice.request is None:
        return "unknown"
    if advice.current_request is None:
        return "warning"
    gap = abs(advice.current_request - advice.request)
    return next((SEVERITIES[n] for n, step in enumerate(_STEPS[resource]) if gap >= step), "good")


SORTS = ("name", "severity", "cpu-savings", "memory-savings")


def sort(rows: Sequence[Recommendation], by: str) -> list[Recommendation]:
    """Worst or largest first; `name` leaves the order."""
    if by == "name":
        return list(rows)
    if by == "severity":
        return sorted(rows, key=lambda row: SEVERITIES.index(severity(row)))
    if by == "cpu-savings":
        return sorted(rows, key=lambda row: -abs(savings(row).saved_cores))
    return sorted(rows, key=lambda row: -abs(savings(row).saved_bytes))
