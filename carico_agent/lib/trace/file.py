"""Record and replay: readings as JSON lines, so that everything after the kernel can be run again.

The first line is a header; each further line is one reading with the number of Pods and whether containers came or
went; once a second also what each Pod uses (`measured`). Unknown fields are left out. A name ending in .gz is
compressed. An existing file is replaced. A line with "row": "pods" holds all containers at one instant instead
(`containers`); replay passes over it. Rows of one type stand in the order of their `t`. The two types do not: the agent
writes containers as soon as it has read them, readings when the model takes them in, up to a second later.

Raw readings are kept and not usage: a better derivation can then be tried on old traces.
"""

import gzip
import json
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import IO, Any, Literal, cast

from carico_agent.core import PodSample
from carico_agent.lib.trace import containers
from carico_agent.lib.trace.containers import PodsRow
from carico_agent.lib.trace.reading import Reading

VERSION = 1
FLUSH_S = 1.0
_FIELDS = tuple(item.name for item in fields(Reading))
_COUNTERS = tuple(item.name for item in fields(Reading) if item.type == int | None)
_KNOWN = frozenset({*_FIELDS, "pods", "churn", "measured"})


class BadTrace(ValueError):
    """The file is no trace, or a line of it is broken; names the line."""


@dataclass(frozen=True, slots=True)
class TraceHeader:
    node: str
    cores: int
    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodMeasurements:
    """All Pods that run, measured one by one."""

    samples: tuple[PodSample, ...]
    used_cores: float = 0.0
    """CPU that they got together [cores]."""
    throttled_ratio: float = 0.0
    """Share of the time in which quotas stopped them, summed over Pods."""
    waited_cores: float = 0.0
    """Time their threads waited for a CPU that others had, per time, summed over Pods."""


@dataclass(slots=True)  # not frozen: see Reading
class TraceRow:
    reading: Reading
    pods: int
    churn: bool
    measured: PodMeasurements | None = None
    """About once a second; None in between, and where Pods are not measured."""


class TraceWriter:
    """Writes whole lines about once a second of reading time, so that a crash costs at most that second."""

    def __init__(self, path: str | os.PathLike[str], node: str, cores: int, resources: tuple[str, ...]) -> None:
        self._file = _open(path, "wb")
        self._lines = [_line({"carico_trace": VERSION, "node": node, "cores": cores, "resources": resources})]
        self._flushed_t = -math.inf

    def write(self, row: TraceRow) -> None:
        reading = row.reading
        known = {key: value for key in _FIELDS if (value := getattr(reading, key)) not in (None, ())}
        measured = {} if row.measured is None else {"measured": _measured(row.measured)}
        self._lines.append(_line({**known, "pods": row.pods, "churn": row.churn, **measured}))
        if reading.t - self._flushed_t >= FLUSH_S:
            self._flushed_t = reading.t
            self._flush()

    def write_pods(self, row: PodsRow) -> None:
        """All containers at one instant, about once a minute; flushed with the next reading."""
        self._lines.append(_line(containers.encode(row)))

    def _flush(self) -> None:
        self._file.write(b"".join(self._lines))
        self._lines.clear()
        self._file.flush()

    def close(self) -> None:
        if not self._file.closed:
            self._flush()
            self._file.close()


def _open(path: str | os.PathLike[str], mode: Literal["rb", "wb"]) -> IO[bytes]:
    opened = gzip.open(path, mode) if os.fspath(path).endswith(".gz") else open(path, mode)  # noqa: SIM115
    return cast(IO[bytes], opened)


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read_trace(path: str | os.PathLike[str]) -> tuple[TraceHeader, Iterator[TraceRow]]:
    """The header at once, the rows as they are asked for. BadTrace names the line; a cut-off last line is ignored."""
    header, rows = read_pods(path)
    return header, (row for row in rows if isinstance(row, TraceRow))


def read_pods(path: str | os.PathLike[str]) -> tuple[TraceHeader, Iterator[TraceRow | PodsRow]]:
    """The header and all rows of both types, in the order in which they were written."""
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise BadTrace(f"{path}: line 1: empty, a header is expected")
    return _header(path, first), _rows(path, lines)


def _lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Whole lines only. After a crash the last one may be half, and a .gz may lack its end."""
    with _open(path, "rb") as file:
        try:
            for line in file:
                if line.endswith(b"\n"):
                    yield line
        except EOFError:
            return
        except (gzip.BadGzipFile, zlib.error) as error:
            raise BadTrace(f"{path}: not gzip: {error}") from error


def _header(path: str | os.PathLike[str], line: bytes) -> TraceHeader:
    try:
        value = _object(line)
        if value.get("carico_trace") != VERSION:
            raise ValueError(f"carico_trace is {value.get('carico_trace')!r}, this version reads {VERSION}")
        resources = value.get("resources")
        if not isinstance(resources, list) or not all(isinstance(name, str) for name in resources):
            raise ValueError(f"resources: a list of names is expected, not {resources!r}")
        if not isinstance(value.get("node"), str):
            raise ValueError(f"node: a name is expected, not {value.get('node')!r}")
        return TraceHeader(value["node"], _counter(value, "cores"), tuple(resources))
    except ValueError as error:
        raise BadTrace(f"{path}: line 1: {error}") from error


def _rows(path: str | os.PathLike[str], lines: Iterator[bytes]) -> Iterator[TraceRow | PodsRow]:
    last_t: dict[type, float] = {TraceRow: -math.inf, PodsRow: -math.inf}
    for number, line in enumerate(lines, start=2):
        try:
            value = _object(line)
            row = containers.decode(value) if value.get("row") == "pods" else _row(value)
            t = row.t if isinstance(row, PodsRow) else row.reading.t
            if t < last_t[type(row)]:
                raise ValueError(f"t: {t} is before {last_t[type(row)]}")
        except ValueError as error:
            raise BadTrace(f"{path}: line {number}: {error}") from error
        last_t[type(row)] = t
        yield row


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"an object is expected, not {line[:40]!r}")
    return value


def _row(value: dict[str, Any]) -> TraceRow:
    if unknown := sorted(value.keys() - _KNOWN):
        raise ValueError(f"unknown field {unknown[0]}")
    t, churn, lacks = value.get("t"), value.get("churn"), value.get("lacks", [])
    if not isinstance(t, int | float) or isinstance(t, bool) or not math.isfinite(t):
        raise ValueError(f"t: seconds are expected, not {t!r}")
    if not isinstance(churn, bool):
        raise ValueError(f"churn: true or false is expected, not {churn!r}")
    if not isinstance(lacks, list) or not all(isinstance(name, str) for name in lacks):
        raise ValueError(f"lacks: a list of names is expected, not {lacks!r}")
    counters = {key: _counter(value, key) for key in _COUNTERS if key in value}
    disks = {name: _counter(value["disks"], name) for name in _table(value, "disks")} if "disks" in value else None
    links = {name: _link(name, link) for name, link in _table(value, "links").items()} if "links" in value else None
    reading = Reading(float(t), disks=disks, links=links, lacks=tuple(lacks), **counters)
    measured = value.get("measured")
    pods = None if measured is None else _pods_measured(measured)
    return TraceRow(reading, _counter(value, "pods"), churn, pods)


def _measured(pods: PodMeasurements) -> dict[str, Any]:
    return {
        "used_cores": round(pods.used_cores, 6),
        "throttled_ratio": round(pods.throttled_ratio, 6),
        **({"waited_cores": round(pods.waited_cores, 6)} if pods.waited_cores else {}),
        "pods": [_pod(pod) for pod in pods.samples],
    }


def _pod(pod: PodSample) -> list[Any]:
    usage = [round(one, 6) if math.isfinite(one) else None for one in pod.usage]
    more = [round(pod.got_ratio, 6), pod.service] if pod.got_ratio != 1 or pod.service else []
    return [pod.uid, pod.workload, pod.per_node, usage, *more]


def _pods_measured(value: Any) -> PodMeasurements:
    if not isinstance(value, dict) or not isinstance(value.get("pods"), list):
        raise ValueError(f"measured: a table with a list of pods is expected, not {value!r}")
    try:
        used_cores, throttled_ratio = float(value["used_cores"]), float(value["throttled_ratio"])
        waited_cores = float(value.get("waited_cores", 0.0))  # left out where none waited, and in older traces
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"measured: used_cores and throttled_ratio are expected in {value!r}") from None
    return PodMeasurements(tuple(map(_pod_sample, value["pods"])), used_cores, throttled_ratio, waited_cores)


def _pod_sample(value: Any) -> PodSample:
    try:
        uid, workload, per_node, usage, *more = value
        got_ratio, service = more or (1.0, False)  # left out where it got all it wanted, and in older traces
        if not (isinstance(uid, str) and isinstance(workload, str) and isinstance(per_node, bool)):
            raise ValueError
        shares = tuple(math.nan if one is None else float(one) for one in usage)
        return PodSample(uid, workload, shares, per_node, float(got_ratio), bool(service))
    except (ValueError, TypeError):
        raise ValueError(
            f"measured: [uid, workload, per_node, usage, got, service] is expected, not {value!r}"
        ) from None


def _counter(table: dict[str, Any], key: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise ValueError(f"{key}: a counter is expected, not {value!r}")
    return value


def _table(value: dict[str, Any], key: str) -> dict[str, Any]:
    table = value[key]
    if not isinstance(table, dict):
        raise ValueError(f"{key}: a table is expected, not {table!r}")
    return table


def _link(name: str, link: Any) -> tuple[int, int, int]:
    if not isinstance(link, list) or len(link) != 3:
        raise ValueError(f"links.{name}: [rx_bytes, tx_bytes, speed_bits] is expected, not {link!r}")
    rx_bytes, tx_bytes, speed_bits = (_counter({name: item}, name) for item in link)
    return rx_bytes, tx_bytes, speed_bits
