"""A small client of Prometheus' HTTP API: instant and range queries. Standard library; used by `carico recommend`.

A range query may return 11,000 points per series (a limit in Prometheus' code), and other servers set other limits, so
a range is asked for in pieces, and a piece that is refused or too large is halved. Every error is one line.
"""

import http.client
import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Labels = tuple[tuple[str, str], ...]

MAX_POINTS = 10_000
"""Below the server's own limit of 11,000 points per series."""
MAX_BYTES = 64 * 2**20
MIN_POINTS = 16
TOO_MUCH = ("maximum resolution", "too many samples", "too many points", "limit", "too large", "exceeds")


class PrometheusError(Exception):
    """One line: what went wrong, and where."""


class _TooMuch(PrometheusError):
    """The server or we refuse an answer of this size; a shorter range may pass."""


@dataclass(frozen=True)
class Points:
    """One series."""

    labels: dict[str, str]
    t_s: Array
    values: Array


class Prometheus:
    """Asks one server. `url` may have a path before /api (a proxy, or another product with the same API)."""

    def __init__(self, url: str, timeout_s: float = 30.0, token: str | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PrometheusError(f"{url}: http://HOST:PORT is expected")
        self.url, self._timeout_s = url.rstrip("/"), timeout_s
        self._headers = {"Accept": "application/json", "User-Agent": "carico"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def instant(self, query: str, t_s: float) -> list[Points]:
        """The value of every series at `t_s`."""
        found = self._ask("query", {"query": query, "time": f"{t_s:.3f}"}, "vector")
        return [_points(one.get("metric"), [one.get("value")]) for one in found]

    def range(
        self,
        query: str,
        start_s: float,
        end_s: float,
        step_s: float,
        progress: Callable[[float], None] = lambda share: None,
    ) -> list[Points]:
        """All points from `start_s` to `end_s`; `progress` gets the share that is done."""
        pieces: dict[Labels, list[Points]] = {}
        for piece in self._pieces(query, start_s, end_s, step_s, progress):
            for one in piece:
                pieces.setdefault(tuple(sorted(one.labels.items())), []).append(one)
        return [
            Points(many[0].labels, np.concatenate([p.t_s for p in many]), np.concatenate([p.values for p in many]))
            for many in pieces.values()
        ]

    def _pieces(
        self, query: str, start_s: float, end_s: float, step_s: float, progress: Callable[[float], None]
    ) -> Iterator[list[Points]]:
        at_s, points = start_s, MAX_POINTS
        while at_s <= end_s:
            until_s = min(at_s + (points - 1) * step_s, end_s)
            asked = {"query": query, "start": f"{at_s:.3f}", "end": f"{until_s:.3f}", "step": f"{step_s:g}"}
            try:
                found = self._ask("query_range", asked, "matrix")
            except _TooMuch:
                if points // 2 < MIN_POINTS:
                    raise
                points = min(points, math.ceil((until_s - at_s) / step_s) + 1) // 2
                continue
            yield [_points(one.get("metric"), one.get("values")) for one in found]
            at_s = until_s + step_s
            progress(min((at_s - start_s) / max(end_s - start_s, step_s), 1.0))

    def _ask(self, path: str, parameters: dict[str, str], kind: str) -> list[dict[str, Any]]:
        data = urllib.parse.urlencode(parameters).encode()
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", data, self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                body = response.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(65_536)) from error
        except TimeoutError as error:
            raise PrometheusError(f"{self.url}: no answer within {self._timeout_s:g} s") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            late = isinstance(reason, TimeoutError)
            message = (
                f"no answer within {self._timeout_s:g} s" if late else _one_line(str(reason) or type(reason).__name__)
            )
            raise PrometheusError(f"{self.url}: {message}") from error
        if len(body) > MAX_BYTES:
            raise _TooMuch(f"{self.url}: an answer is larger than {MAX_BYTES >> 20} MiB; name a workload")
        return self._result(body, kind)

    def _refused(self, code: int, body: bytes) -> PrometheusError:
        try:
            answer = json.loads(body)
            message = f"{answer['errorType']}: {answer['error']}"
        except (ValueError, KeyError, TypeError):
            message = body[:200].decode(errors="replace") or http.client.responses.get(code, "")
        kind = _TooMuch if code in (400, 422) and any(word in message.lower() for word in TOO_MUCH) else PrometheusError
        return kind(f"{self.url}: HTTP status {code}: {_one_line(message)}")

    def _result(self, body: bytes, kind: str) -> list[dict[str, Any]]:
        try:
            answer = json.loads(body)
            if answer["status"] != "success":
                raise PrometheusError(f"{self.url}: {_one_line(str(answer.get('error', answer['status'])))}")
            data = answer["data"]
            if data["resultType"] != kind:
                raise PrometheusError(f"{self.url}: a {kind} is expected, not {data['resultType']!r}")
            return list(data["result"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise PrometheusError(f"{self.url}: not an answer of Prometheus: {_one_line(repr(body[:60]))}") from error


def _points(metric: Any, values: Any) -> Points:
    """Values are strings, "NaN" and "+Inf" among them; those are left to the rules for bad points."""
    try:
        pairs = np.array([(float(t), float(v)) for t, v in values], dtype=float).reshape(-1, 2)
        return Points({str(key): str(value) for key, value in metric.items()}, pairs[:, 0], pairs[:, 1])
    except (TypeError, ValueError, AttributeError) as error:
        raise PrometheusError(f"not a series of Prometheus: {_one_line(repr(metric))}") from error


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
