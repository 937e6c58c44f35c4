"""Prometheus text format, by hand.

Why not prometheus-client: importing it costs 13 MB resident (`make bench`, table "imports"), for a format of
three kinds of lines.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Family:
    """One metric with its help text and samples.

    >>> family = Family("carico_usage_ratio", "gauge", "Usage, 1 is full.").add(0.25, resource="cpu")
    >>> print(render([family]), end="")
    # HELP carico_usage_ratio Usage, 1 is full.
    # TYPE carico_usage_ratio gauge
    carico_usage_ratio{resource="cpu"} 0.25
    """

    name: str
    kind: str  # gauge, counter, histogram
    help: str
    samples: list[tuple[str, Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, suffix: str = "", **labels: str) -> "Family":
        """Add a sample; an unknown value (None) is left out, as Prometheus expects."""
        if value is not None:
            self.samples.append((self.name + suffix, labels, float(value)))
        return self


def process(cpu_s: float, resident_bytes: float, whose: str) -> list[Family]:
    """What the process itself takes, by the names that all Prometheus clients use."""
    return [
        Family("process_cpu_seconds_total", "counter", f"CPU time of {whose}.").add(cpu_s),
        Family("process_resident_memory_bytes", "gauge", f"Resident memory of {whose}.").add(resident_bytes),
    ]


def histogram(name: str, help: str, bounds: Iterable[float], counts: Iterable[int], total: float) -> Family:
    """A histogram from counts per bucket, the last one without bound."""
    family, seen = Family(name, "histogram", help), 0
    for bound, count in zip([*bounds, float("inf")], counts, strict=True):
        seen += count
        family.add(seen, "_bucket", le="+Inf" if bound == float("inf") else f"{bound:g}")
    return family.add(total, "_sum").add(seen, "_count")


def render(families: Iterable[Family]) -> str:
    """All families as text; those without samples are left out."""
    lines = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {_escape(family.help)}", f"# TYPE {family.name} {family.kind}"]
            lines += [f"{name}{_labels(labels)} {_number(value)}" for name, labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{key}="{_quoted(value)}"' for key, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escape(text).replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
