"""Threads for what may block: a plugin, a disk, a read of the kernel that waits. The event loop only awaits them.

Why not asyncio.to_thread: its threads are few, shared by everybody, and waited for at the end of the process. One
plugin that hangs would take a place from the disk, and the agent could not stop. Here each kind of work has its own
bounded set of daemon threads; when all of them are taken the next call is refused at once and never queued.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from carico_agent.lib.supervise.tasks import resolve

P = ParamSpec("P")
T = TypeVar("T")


class WorkersBusy(Exception):
    """All threads for this kind of work are taken."""


class Workers:
    """At most `most` calls at a time, each in a daemon thread. Threads are started when needed and kept."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._free = threading.Semaphore(most)
        self._idle = threading.Semaphore(0)
        self._started = 0

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`call`'s result or failure. WorkersBusy when no thread is free. Who stops waiting leaves it running."""
        if not self._free.acquire(blocking=False):
            raise WorkersBusy(f"{self._most} calls for {self._name} are under way and have not come back")
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # from here on it cannot be cancelled, only left alone
        self._jobs.put(partial(self._resolve, future, partial(call, *args, **kwargs)))
        if not self._idle.acquire(blocking=False):
            self._start_thread()
        return await asyncio.shield(asyncio.wrap_future(future))

    def _start_thread(self) -> None:
        self._started += 1
        threading.Thread(target=self._work, name=f"carico {self._name} {self._started}", daemon=True).start()

    def _work(self) -> None:
        while True:
            self._jobs.get()()

    def _resolve(self, future: "Future[T]", call: Callable[[], T]) -> None:
        """The thread is free before its caller gets the result: the caller may come back at once."""
        outcome: Future[T] = Future()
        resolve(outcome, call)
        self._idle.release()
        self._free.release()
        if (error := outcome.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(outcome.result())
