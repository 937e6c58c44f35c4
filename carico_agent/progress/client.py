"""Reports to this node's agent how far a job is. For training loops and batch jobs; standard library only.

    from carico_agent.progress import track, report
    for batch in track(loader):             # or track(batches, total=5000)
        ...
    report(done=120, total=5000)            # the same by hand, as often as you like

A job never notices the agent: no call waits, none raises, at most one report a second is sent. Who reports is found by
the agent from the process, so there is nothing to configure but the socket, when it is not at its usual place:
$CARICO_PROGRESS_SOCKET.

Why a plain non-blocking socket and no HTTP library: `http.client` waits for the answer. Here a report is written into
the socket's buffer and the answer is looked at when the next report is due. After the tenth report without an answer
the agent hangs: the connection is closed and looked for again after 2, 4, 8 … 60 s; only an answer makes that short
again, not a report that could be written, for the kernel takes those of a hanging agent too. A call that sends nothing
costs about 0.2 µs.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from math import inf, isfinite
from typing import TypeVar

T = TypeVar("T")

INTERVAL_S = 1.0
"""Least time between two reports; the agent may ask for a longer one."""
MAX_INTERVAL_S = 60.0
"""At most this much longer, and between two looks for an agent that is not there."""
MAX_UNANSWERED = 10
"""After so many reports without an answer the agent hangs, or has forgotten the connection: begin a new one."""
TAKEN, REFUSED = b" 200 ", b" 403 "
NEXT = b'"next_s":'


def default_path() -> str:
    """Where the agent takes reports: $CARICO_PROGRESS_SOCKET, the system's socket, or else the user's own."""
    if path := os.environ.get("CARICO_PROGRESS_SOCKET"):
        return path
    system, own = "/run/carico/progress/progress.sock", os.environ.get("XDG_RUNTIME_DIR")
    if os.path.exists(system):
        return system
    return f"{own}/carico/progress/progress.sock" if own else f"/tmp/carico-{os.geteuid()}/progress/progress.sock"


class Reporter:
    """One connection to the agent. For any number of threads; a forked child opens its own."""

    def __init__(self, path: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._pid = os.getpid()
        self._due_s, self._interval_s, self._failures = -inf, INTERVAL_S, 0
        self._unanswered = 0
        self.sent = 0
        """Reports written to the socket so far."""

    def report(self, done: float, total: float) -> None:
        """`done` of `total` units of work are finished. Returns at once, whatever happens to the agent."""
        now_s = self._clock()
        if now_s < self._due_s or not self._lock.acquire(blocking=False):
            return
        try:
            if request := _request(done, total):
                self._send(request, now_s)
        finally:
            self._lock.release()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket, self._unanswered = None, 0

    def _send(self, request: bytes, now_s: float) -> None:
        if self._pid != os.getpid():  # the parent's connection: the agent would take us for the parent
            self.close()
            self._pid, self._interval_s, self._failures = os.getpid(), INTERVAL_S, 0
        try:
            if self._socket is None:
                self._socket = _connect(self._path or default_path())
            elif not self._read_answers(self._socket):
                self.close()
                self._socket = _connect(self._path or default_path())
            # without MSG_NOSIGNAL a process that wants SIGPIPE would be ended by an agent that has closed
            if self._socket.send(request, socket.MSG_NOSIGNAL) < len(request):
                raise BlockingIOError  # half a request is no request: begin again
        except (OSError, ValueError):
            self._back_off(now_s)
        else:
            self.sent, self._unanswered = self.sent + 1, self._unanswered + 1
            self._due_s = now_s + self._interval_s

    def _read_answers(self, connection: socket.socket) -> bool:
        """What the agent has answered meanwhile; False when it has closed the connection."""
        try:
            text = connection.recv(65536)
        except BlockingIOError:  # none yet
            if self._unanswered >= MAX_UNANSWERED:
                raise TimeoutError from None
            return True
        if not text and self._unanswered:
            raise ConnectionResetError
        self._unanswered = 0
        if text[:32].find(REFUSED) > 0:  # not in a Pod, which will not change soon
            raise ConnectionRefusedError
        if text[:32].find(TAKEN) > 0:
            self._failures = 0
        _, found, tail = text.rpartition(NEXT)
        if found:
            wanted_s = float(tail.partition(b",")[0].partition(b"}")[0])
            self._interval_s = min(max(INTERVAL_S, wanted_s), MAX_INTERVAL_S)
        return bool(text)

    def _back_off(self, now_s: float) -> None:
        """Nobody listens, or it hangs: look again after 2, 4, 8 … 60 s."""
        self.close()
        self._failures += 1
        self._due_s = now_s + min(INTERVAL_S * 2.0 ** min(self._failures, 10), MAX_INTERVAL_S)


def _connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        connection.connect(path)  # unix sockets connect at once, or say EAGAIN when the queue is full
    except (OSError, ValueError):
        connection.close()
        raise
    return connection


def _request(done: float, total: float) -> bytes:
    """The request; empty for what is no progress: the agent would refuse it."""
    try:
        done, total = float(done), float(total)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: PyTorch, for a tensor of two numbers
        return b""
    if not (isfinite(done) and isfinite(total) and 0 <= done <= total and total > 0):
        return b""
    body = json.dumps({"done": done, "total": total}, separators=(",", ":")).encode()
    head = b"POST /v1/progress HTTP/1.1\r\nHost: carico\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


_own = Reporter()


def report(done: float, total: float) -> None:
    """`done` of `total` units of work are finished: steps, batches, epochs, files, bytes. Call it as often as you like.

    >>> report(3, 10)
    """
    _own.report(done, total)


def track(iterable: Iterable[T], total: float | None = None) -> Iterator[T]:
    """Go through `iterable` and report after each item. `total`: its length, where `len` does not know it; nothing is
    reported when nobody knows.

    >>> sum(track(range(5)))
    10
    >>> list(track(iter("abc"), total=3))
    ['a', 'b', 'c']
    """
    size = _length(iterable) if total is None else total
    if size is None:
        yield from iterable
        return
    for done, item in enumerate(iterable, 1):
        yield item
        _own.report(done, size)


def _length(iterable: Iterable[T]) -> float | None:
    try:
        return len(iterable)  # type: ignore[arg-type]
    except (TypeError, ValueError, NotImplementedError, AttributeError):  # data loaders of streams raise all of these
        return None
