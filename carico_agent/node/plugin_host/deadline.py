"""Calls that may hang, made in a thread of their own and waited for only so long.

Writing memory.high or memory.max can block for as long as the kernel reclaims. A thread per call (50 µs) rather than
a pool: a hanging one must not take a place from the next, and writes are rare. The threads are daemons: the agent can
stop while one hangs (the journal knows what it was doing).
"""

import threading
from collections.abc import Callable

from carico_agent.lib.supervise.tasks import guard_call


class BoundedCall:
    """One call under way; `error` is None while it runs and when it went well."""

    def __init__(
        self, name: str, work: Callable[[], object], landed: Callable[["BoundedCall"], None] | None = None
    ) -> None:
        self.error: str | None = None
        self._name, self._work, self._landed = name, work, landed
        self._done = threading.Event()
        threading.Thread(target=self._run, name=f"carico {name}", daemon=True).start()

    def _run(self) -> None:
        self.error = guard_call(self._name, self._work)
        self._done.set()
        if self._landed is not None:
            guard_call(self._name, lambda: self._landed and self._landed(self))

    def wait(self, deadline_s: float) -> bool:
        """True when it has ended in time."""
        return self._done.wait(deadline_s)
