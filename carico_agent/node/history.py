"""The last quarter of an hour, a value a second: what the page draws when it is opened (`GET /v1/history`).

A ring of columns, not of objects: 900 rows of eight numbers as `array` take 36 kB, as dictionaries 700 kB. Writing a
row takes 2 µs a second. Only starts, ends and out-of-memory kills of containers are kept as marks, at most 900 of them;
a Pod's start is four events of the runtime, and three of those are of no use in a chart. Units and processes that count
as Pods have one each.
"""

import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from math import inf, isfinite, isnan, nan
from typing import Any

from aiohttp import web

from carico_agent.core import Estimate
from carico_agent.lib.net.http import ApiError, Handler, answer
from carico_agent.node.pods.events import Event
from carico_agent.node.publish.latest import at_once
from carico_agent.node.publish.status import Status

SECONDS = 900
MAX_MARKS = 900
MARKED = {
    "/tasks/start": "start",
    "/tasks/exit": "exit",
    "/tasks/oom": "oom",
    "/processes/create": "start",
    "/processes/delete": "exit",
}
NUMBERS = ("pod_capacity", "low", "high", "pods")


class StatusHistory:
    """One row per `record`, the oldest is overwritten. Belongs to the event loop."""

    def __init__(
        self,
        resources: Sequence[str],
        current: Callable[[], Awaitable[object]] = at_once,
        rows: int = SECONDS,
        marks: int = MAX_MARKS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`current()` waits until the newest second is recorded; `clock` is the wall clock: the reader's axis."""
        self._current, self._clock, self._rows, self._written = current, clock, rows, 0
        self._time_s = array("d", bytes(8 * rows))
        self._numbers = {name: array("f", bytes(4 * rows)) for name in NUMBERS}
        self._usage = {name: array("f", bytes(4 * rows)) for name in resources}
        self._marks: deque[tuple[float, str, str]] = deque(maxlen=marks)

    def record(self, status: Status) -> None:
        """The values of this second."""
        numbers = [_number(getattr(status, name)) for name in NUMBERS]
        self._write(numbers, [_number(status.usage.get(name)) for name in self._usage], 0.0)

    def record_estimate(self, then: Estimate, ago_s: float = 0.0) -> None:
        """The same from the model's answer of `ago_s` before: no status has to be made for it."""
        numbers = [getattr(then, name) for name in NUMBERS]
        self._write([value if isfinite(value) else nan for value in numbers], then.usage, ago_s)

    def _write(self, numbers: Sequence[float], usage: Sequence[float], ago_s: float) -> None:
        row = self._written % self._rows
        self._written += 1
        self._time_s[row] = round(self._clock() - ago_s, 2)
        columns = (*self._numbers.values(), *self._usage.values())
        for column, value in zip(columns, (*numbers, *usage), strict=True):
            column[row] = value

    def mark(self, event: Event) -> None:
        """A container event; those that a chart does not show are ignored."""
        if (what := MARKED.get(event.topic)) is not None:
            pod = "/".join(filter(None, (event.pod_namespace, event.pod_name))) or event.container_id
            self._marks.append((event.time_s, what, pod[:253]))

    def body(self, after_s: float = -inf) -> dict[str, Any]:
        """Rows and marks later than `after_s`, oldest first, as columns; null where a value was unknown.

        >>> history = StatusHistory(("cpu",), rows=2, clock=iter((1.0, 2.0, 3.0)).__next__)
        >>> for used in (0.25, 0.5, None): history.record(Status(pods=1, pod_capacity=7.0, usage={"cpu": used}))
        >>> history.body()["time_s"], history.body()["usage"], history.body()["pods"]
        ([2.0, 3.0], {'cpu': [0.5, None]}, [1.0, 1.0])
        """
        times = self._in_order(self._time_s)
        first = next((row for row, t in enumerate(times) if t > after_s), len(times))
        since_s = max(after_s, times[0] - 1.0) if times else after_s
        marks = [{"time_s": round(t, 2), "what": what, "pod": pod} for t, what, pod in self._marks if t > since_s]
        return {
            "period_s": 1.0,
            "time_s": list(times[first:]),
            **{name: self._column(column, first) for name, column in self._numbers.items()},
            "usage": {name: self._column(column, first) for name, column in self._usage.items()},
            "events": marks,
        }

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {"/v1/history": {"GET": self._show}}

    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """the last 15 minutes, a value a second, with starts and ends of containers; ?after=UNIX_SECONDS gives less"""
        try:
            after_s = float(request.query.get("after", -inf))
        except ValueError as error:
            raise ApiError(400, "after: seconds since 1970 are expected") from error
        await self._current()
        return answer(self.body(after_s))

    def _in_order(self, column: "array[float]") -> "array[float]":
        if self._written <= self._rows:
            return column[: self._written]
        first = self._written % self._rows
        return column[first:] + column[:first]

    def _column(self, column: "array[float]", first: int) -> list[float | None]:
        return [None if isnan(value) else round(value, 4) for value in self._in_order(column)[first:]]


def _number(value: float | None) -> float:
    return nan if value is None else value
