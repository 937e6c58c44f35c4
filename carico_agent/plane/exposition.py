"""Prometheus text as it comes in: only the wanted families are looked at, and only the wanted labels kept.

Why a filter by name before anything else: of the 10,700 lines of an idle kube-apiserver 1.20 (1.4 MB) 8,800 are
histogram buckets, and a large cluster has 20 MB. A skipped line costs 0.2 µs, a parsed one 4 µs.
"""

import re
from collections.abc import Iterable, Mapping

Totals = dict[str, dict[tuple[str, ...], float]]
"""Family → values of its kept labels → sum over all others."""

MAX_KEYS = 4096
"""Label combinations kept per family; what comes beyond is summed up under OTHER."""
OTHER = "other"

_LABEL = re.compile(rb'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(rb"\\(.)")


class MetricsReader:
    """Takes text in pieces of any size; `totals` has what was in the complete lines.

    >>> reader = MetricsReader({"up": ("job",)})
    >>> reader.feed(b'# TYPE up gauge\\nup{job="a",x="1"} 1\\nup{job="a",x="2"} 2')
    >>> reader.feed(b'.5\\nother 7\\n')
    >>> reader.totals
    {'up': {('a',): 3.5}}
    """

    def __init__(self, wanted: Mapping[str, tuple[str, ...]]) -> None:
        self._wanted = {name.encode(): (name, tuple(map(str.encode, labels))) for name, labels in wanted.items()}
        self._rest = b""
        self.totals: Totals = {}

    def feed(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._take(line)

    def close(self) -> Totals:
        """The last line may lack its newline."""
        self._take(self._rest)
        self._rest = b""
        return self.totals

    def _take(self, line: bytes) -> None:
        brace = line.find(b"{")
        name = line[:brace] if brace >= 0 else line.partition(b" ")[0]
        kept = self._wanted.get(name)
        if kept is None:
            return
        try:
            labels, value = _split(line, brace)
        except (ValueError, IndexError):
            return  # a broken line is no number; the others stay good
        if value != value:
            return  # NaN: unknown
        family = self.totals.setdefault(kept[0], {})
        key = tuple(labels.get(label, b"").decode("utf-8", "replace") for label in kept[1])
        if key not in family and len(family) >= MAX_KEYS:
            key = (OTHER,) * len(key)
        family[key] = family.get(key, 0.0) + value


def _split(line: bytes, brace: int) -> tuple[dict[bytes, bytes], float]:
    """Labels and value; raises ValueError or IndexError."""
    if brace < 0:
        return {}, float(line.split()[1])
    end = line.rindex(b"}")
    labels = {name: _ESCAPED.sub(_unescape, value) for name, value in _LABEL.findall(line, brace, end)}
    return labels, float(line[end + 1 :].split()[0])


def _unescape(found: "re.Match[bytes]") -> bytes:
    return b"\n" if found[1] == b"n" else found[1]


def read(lines: Iterable[bytes], wanted: Mapping[str, tuple[str, ...]]) -> Totals:
    """All at once, for texts that are at hand."""
    reader = MetricsReader(wanted)
    for line in lines:
        reader.feed(line)
    return reader.close()


def total(totals: Totals, family: str) -> float | None:
    """The sum over all labels; None when the family is not there."""
    values = totals.get(family)
    return sum(values.values()) if values else None
