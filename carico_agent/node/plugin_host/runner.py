"""One plugin in its own thread: ticked, timed, backed off when it fails or is slow, never in anybody's way."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.lib.supervise.tasks import guard_call
from carico_agent.plugin_api import Metric, Plugin, Refuse, View, Writer

log = logging.getLogger(__name__)

BACKOFF = Backoff(first_s=10.0, factor=2.0, max_s=600.0)
BUSY_WAIT_S = 0.2
"""How long a question waits for a plugin that is in its tick [s]."""


@dataclass(slots=True)
class TickCounts:
    """How the calls of one plugin went."""

    ticks: int = 0
    failures: int = 0
    """Ticks that failed or were too slow."""
    overruns: int = 0
    """Of those, the slow ones."""
    failures_in_a_row: int = 0
    last_s: float = 0.0
    """Duration of the last tick [s]."""
    max_s: float = 0.0
    busy_since_s: float | None = None
    """Since when the plugin is in its tick; None while it is not."""

    def ended(self, took_s: float) -> None:
        self.busy_since_s, self.last_s, self.max_s = None, took_s, max(self.max_s, took_s)
        self.ticks += 1

    def judged(self, good: bool) -> None:
        self.failures += not good
        self.failures_in_a_row = 0 if good else self.failures_in_a_row + 1


class Runner:
    """States: starting, running, refused (it does not fit this node), failing (backed off), stopped."""

    def __init__(
        self,
        plugin: Plugin,
        writer: Writer,
        view_of: Callable[[], View],
        deadline_s: float = 2.0,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self.plugin, self.name = plugin, plugin.name
        self.state, self.detail = "starting", ""
        self.counts = TickCounts()
        self._writer, self._view_of, self._deadline_s, self._backoff = writer, view_of, deadline_s, backoff
        self._started = False
        self.report: dict[str, Any] = {}
        self._metrics: tuple[Metric, ...] = ()
        self._lock = threading.Lock()  # held while the plugin's own code runs: it needs none of its own
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def launch(self) -> None:
        self._thread = threading.Thread(target=self._loop, name=f"carico plugin {self.name}", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        due_s = time.monotonic()
        while not self._stop.wait(max(0.0, due_s - time.monotonic())) and self.state != "refused":
            due_s = time.monotonic() + self.step()

    def step(self) -> float:
        """One call of the plugin; returns how long to wait before the next [s]."""
        counts = self.counts
        started_s = counts.busy_since_s = time.monotonic()
        with self._lock:
            error = guard_call(f"plugin {self.name}", self._call)
        counts.ended(time.monotonic() - started_s)
        if error is None and counts.last_s > self._deadline_s:
            counts.overruns += 1
            error = f"took {counts.last_s:.1f} s, more than {self._deadline_s:g} s"
        return self._judge(error)

    def _call(self) -> None:
        view = self._view_of()
        if not self._started:
            try:
                self.plugin.start(view)
            except Refuse as refusal:
                self._change("refused", str(refusal))
                return
            self._started = True
        self.plugin.tick(view, self._writer)
        self.report, self._metrics = self.plugin.report(), tuple(self.plugin.metrics())

    def _judge(self, error: str | None) -> float:
        if self.state in ("refused", "stopped"):
            return self.plugin.period_s
        self.counts.judged(error is None)
        if error is None:
            self._change("running", "")
            return self.plugin.period_s
        self._change("failing", error)
        return max(self._backoff.delay_s(self.counts.failures_in_a_row), self.plugin.period_s)

    def _change(self, state: str, detail: str) -> None:
        """Only changes of condition are logged."""
        if state != self.state:
            log.log(
                logging.WARNING if detail else logging.INFO,
                "plugin %s: %s%s",
                self.name,
                state,
                f": {detail}" if detail else "",
            )
        self.state, self.detail = state, detail

    def stop(self, wait_s: float) -> None:
        """Ask the thread to end. One that hangs is left behind: the writer takes no more requests from it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(wait_s)
        self.state = "stopped"

    def condition(self) -> dict[str, Any]:
        """As `/v1/plugins` shows it; never waits for the plugin."""
        counts, busy = self.counts, self.counts.busy_since_s
        return {
            "name": self.name,
            "state": self.state,
            "detail": self.detail,
            "ticks": counts.ticks,
            "failures": counts.failures,
            "overruns": counts.overruns,
            "last_tick_s": round(counts.last_s, 6),
            "max_tick_s": round(counts.max_s, 6),
            "period_s": self.plugin.period_s,
            "in_tick_s": round(time.monotonic() - busy, 3) if busy is not None else None,
        }

    def answer(self, question: Mapping[str, str]) -> dict[str, Any]:
        """Answered by the plugin if it is free, from its last report if it is busy. Runs the plugin's code: not for the
        event loop."""
        if not self._lock.acquire(timeout=BUSY_WAIT_S):
            return self.report
        box: list[dict[str, Any]] = []
        try:
            error = guard_call(f"plugin {self.name}", lambda: box.append(self.plugin.answer(question)))
        finally:
            self._lock.release()
        return box[0] if error is None else {"error": error}

    def metrics(self) -> Iterable[Metric]:
        return self._metrics
