"""Named, guarded tasks: the one place that catches everything.

A task that fails is logged once when it starts failing and once when it heals, restarted after a backoff, and shown
with its condition in `/v1/self`. Nothing else in carico catches `Exception` (a test counts).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from carico_agent.lib.supervise.backoff import Backoff

log = logging.getLogger(__name__)

T = TypeVar("T")
HEALED_AFTER_S = 10.0


@dataclass(slots=True)
class Condition:
    """How one task is doing, as others may read it."""

    state: str = "starting"  # starting, running, failing, done
    failures: int = 0
    restarts: int = 0
    last_error: str = ""
    since_s: float = field(default_factory=time.monotonic)

    def change(self, state: str) -> None:
        if state != self.state:
            self.state, self.since_s = state, time.monotonic()


class Supervisor:
    """Runs coroutines by name, restarts the ones that fail, and never lets one take the others down."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self.conditions: dict[str, Condition] = {}
        self._backoff = backoff or Backoff()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work()` until cancelled under `name`; a normal return ends it."""
        if name in self._tasks:
            raise ValueError(f"a task named {name!r} is already running")
        self.conditions[name] = Condition()
        self._tasks[name] = asyncio.create_task(self._guard(name, work), name=name)

    async def _guard(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        condition = self.conditions[name]
        while True:
            started = time.monotonic()
            healing = asyncio.get_running_loop().call_later(
                HEALED_AFTER_S if condition.failures else 0, self._healed, name
            )
            try:
                await work()
                condition.change("done")
                return
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if time.monotonic() - started > HEALED_AFTER_S:
                    condition.failures = 0
                self._failed(name, error)
            finally:
                healing.cancel()
            await asyncio.sleep(self._backoff.delay_s(condition.failures))
            condition.restarts += 1

    def _healed(self, name: str) -> None:
        condition = self.conditions[name]
        if condition.state == "failing":
            log.info("%s: works again after %d failures", name, condition.failures)
        condition.failures = 0
        condition.change("running")

    def _failed(self, name: str, error: Exception) -> None:
        condition = self.conditions[name]
        condition.failures += 1
        condition.last_error = f"{type(error).__name__}: {error}"
        if condition.state != "failing":
            log.warning("%s: failing, will retry: %s", name, condition.last_error, exc_info=log.isEnabledFor(10))
        condition.change("failing")

    async def stop(self) -> None:
        """Cancel everything and wait until it has ended."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()


def guard_call(name: str, call: Callable[..., object], *arguments: object) -> str | None:
    """Run a foreign function (a plugin, a callback); its failure is returned as text, never raised."""
    try:
        call(*arguments)
    except Exception as error:
        log.debug("%s: %r", name, error, exc_info=True)
        return f"{type(error).__name__}: {error}"
    return None


def resolve(future: "Future[T]", call: Callable[[], T]) -> None:
    """Run `call` and put its result, or its failure whatever it is, into `future`: for worker threads."""
    try:
        result = call()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)
