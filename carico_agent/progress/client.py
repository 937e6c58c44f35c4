"""Reports to this node's agent how far a job is. For training loops and batch jobs; standard library only.

    from carico_agent.progress import track, report
    for batch in track(loader):             # or track(batches, total=5000)
        ...
    report(done=120, total=5000)            # the same by hand, as often as you like

A job never notices the agent: no call waits, none raises, at most one report a second is sent. The end of a loop is
reported at once, and what was not sent yet leaves when the process exits. Who reports is found by the agent from the
process, so there is nothing to configure but the socket, when it is not at its usual place: $CARICO_PROGRESS_SOCKET. In
a Pod without the socket the client writes its reports to the file $CARICO_PROGRESS_FILE.

An agent that refuses the reports is named in one warning of the logger `carico`, with the remedy. Where no agent is,
the client says nothing: the same code runs on machines without carico.

Why a plain non-blocking socket and no HTTP library: `http.client` waits for the answer. Here a report is written into
the socket's buffer and the answer is looked at when the next report is due. After the tenth report without an answer
the agent hangs: the connection is closed and looked for again after 2, 4, 8 … 60 s; only an answer makes that short
again, not a report that could be written, for the kernel takes those of a hanging agent too. A call that sends nothing
costs about 0.3 µs.
"""

import atexit
import contextlib
import json
import os
import re
import select
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
EXIT_WAIT_S = 0.3
"""How long a process that exits waits for the first answer of the agent. Without it a script of a tenth of a second
would be gone before the agent has seen which process reports."""
LINE_BYTES = 128
"""Of a report in a file."""
TAKEN, REFUSED = b" 200 ", b" 403 "
NEXT = b'"next_s":'


def default_paths() -> tuple[str, ...]:
    """Where an agent may take reports: $CARICO_PROGRESS_SOCKET alone, or else the system's socket and the user's."""
    if path := os.environ.get("CARICO_PROGRESS_SOCKET"):
        return (path,)
    own = os.environ.get("XDG_RUNTIME_DIR")
    user = f"{own}/carico" if own else f"/tmp/carico-{os.geteuid()}"
    return "/run/carico/progress/progress.sock", f"{user}/progress/progress.sock"


class ReportFile:
    """A job's report as a file, for Pods that mount no socket: one line of JSON, written over the last one.

    The file lies in an emptyDir of the Pod, which the Pod Security levels "baseline" and "restricted" allow; the agent
    of the node reads it there (carico_agent/node/pods/report_files.py).

    Why in place and not by a rename: a rename changes the folder, which a busy disk may hold up, and the loop with it.
    A line of one length is one write to one page; a reader that meets half of it finds no JSON and reads again.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        os.fchmod(self._descriptor, 0o644)  # the agent may be another user, and the job's umask 077

    def write(self, body: bytes) -> None:
        os.pwrite(self._descriptor, body.ljust(LINE_BYTES - 1) + b"\n", 0)
        if os.fstat(self._descriptor).st_size != LINE_BYTES:  # a shell wrote it before
            os.ftruncate(self._descriptor, LINE_BYTES)


class Reporter:
    """One connection to the agent. For any number of threads; a forked child opens its own."""

    def __init__(self, path: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._pid = os.getpid()
        self._due_s, self._interval_s, self._failures = -inf, INTERVAL_S, 0
        self._end_due_s = -inf
        self._unanswered, self._answered, self._warned = 0, False, False
        self._unsent: tuple[float, float] | None = None
        self._file: ReportFile | None = None
        self.sent = 0
        """Reports written so far."""

    def report(self, done: float, total: float) -> None:
        """`done` of `total` units of work are finished. Returns at once, whatever happens to the agent."""
        now_s = self._clock()
        self._unsent = (done, total)
        if now_s >= self._due_s:
            self._try_to_send(now_s)
        elif now_s >= self._end_due_s and _is_end(done, total):
            self.flush()

    def flush(self) -> None:
        """Send what was not sent yet, at most once a second. For the end of a loop; `report` does the rest."""
        now_s = self._clock()
        if self._unsent is not None and not self._failures and now_s >= self._end_due_s:
            self._end_due_s = now_s + INTERVAL_S
            self._try_to_send(now_s)

    def leave(self) -> None:
        """Send what was not sent yet, whenever that was due: this process exits. Waits for the agent's first answer."""
        if self._unsent is not None and not self._warned:
            self._try_to_send(self._clock())
        connection = self._socket
        if connection is None or self._answered or self._pid != os.getpid():
            return
        with contextlib.suppress(OSError, ValueError):
            watch = select.poll()
            watch.register(connection, select.POLLIN)
            if watch.poll(EXIT_WAIT_S * 1000):
                self._read_answers(connection)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket, self._unanswered = None, 0

    def _try_to_send(self, now_s: float) -> None:
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._unsent is not None and (body := _body(*self._unsent)):
                self._send(body, now_s)
        finally:
            self._lock.release()

    def _send(self, body: bytes, now_s: float) -> None:
        if self._pid != os.getpid():  # the parent's connection: the agent would take us for the parent
            self.close()
            self._pid, self._interval_s, self._failures = os.getpid(), INTERVAL_S, 0
            self._answered = self._warned = False
        try:
            if self._path is None and (file := os.environ.get("CARICO_PROGRESS_FILE")):
                self._write(file, body)
            else:
                self._send_request(HEAD % len(body) + body)
        except (OSError, ValueError):
            self._back_off(now_s)
        else:
            self.sent, self._unsent = self.sent + 1, None
            self._due_s = now_s + self._interval_s

    def _write(self, path: str, body: bytes) -> None:
        if self._file is None:
            self._file = ReportFile(path)
        self._file.write(body)
        self._failures = 0

    def _send_request(self, request: bytes) -> None:
        if self._socket is None:
            self._socket = self._connect()
        elif not self._read_answers(self._socket):
            self.close()
            self._socket = self._connect()
        # without MSG_NOSIGNAL a process that wants SIGPIPE would be ended by an agent that has closed
        if self._socket.send(request, socket.MSG_NOSIGNAL) < len(request):
            raise BlockingIOError  # half a request is no request: begin again
        self._unanswered += 1

    def _connect(self) -> socket.socket:
        *first, last = default_paths() if self._path is None else (self._path,)
        for path in first:
            with contextlib.suppress(OSError):  # a dead system agent leaves its socket behind: try the user's own
                return _connect(path)
        return _connect(last)

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
        self._unanswered, self._answered = 0, True
        if text[:32].find(REFUSED) > 0:  # which will not change soon
            self._warn(text)
            raise ConnectionRefusedError
        if text[:32].find(TAKEN) > 0:
            self._failures = 0
        _, found, tail = text.rpartition(NEXT)
        if found:
            wanted_s = float(tail.partition(b",")[0].partition(b"}")[0])
            self._interval_s = min(max(INTERVAL_S, wanted_s), MAX_INTERVAL_S)
        return bool(text)

    def _warn(self, answer: bytes) -> None:
        """Once per process. The agent's text has cause and remedy."""
        if self._warned:
            return
        self._warned = True
        import logging  # most jobs never need it

        found = re.search(rb'"error": ?"((?:[^"\\]|\\.)*)"', answer)
        why = json.loads(b'"' + found[1] + b'"') if found else "it gave no reason"
        logging.getLogger("carico").warning("carico's agent refuses the progress of this process: %s", why)

    def _back_off(self, now_s: float) -> None:
        """No agent listens, or it hangs: look again after 2, 4, 8 … 60 s."""
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


def _is_end(done: float, total: float) -> bool:
    try:
        return bool(done >= total)
    except (TypeError, ValueError, RuntimeError):  # as in _body
        return False


def _body(done: float, total: float) -> bytes:
    """The report; empty for what is no progress: the agent would refuse it."""
    try:
        done, total = float(done), float(total)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: PyTorch, for a tensor of two numbers
        return b""
    if not (isfinite(done) and isfinite(total) and 0 <= done <= total and total > 0):
        return b""
    return json.dumps({"done": done, "total": total}, separators=(",", ":")).encode()


HEAD = b"POST /v1/progress HTTP/1.1\r\nHost: carico\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


_own = Reporter()
atexit.register(_own.leave)


def report(done: float, total: float) -> None:
    """`done` of `total` units of work are finished: steps, batches, epochs, files, bytes. Call it as often as you like.

    >>> report(3, 10)
    """
    _own.report(done, total)


def flush() -> None:
    """Send the last report now instead of at the exit of the process. For the end of a training."""
    _own.flush()


def track(iterable: Iterable[T], total: float | None = None) -> Iterator[T]:
    """Go through `iterable` and report after each item. `total`: its length, where `len` does not know it; nothing is
    reported when it is not known.

    >>> sum(track(range(5)))
    10
    >>> list(track(iter("abc"), total=3))
    ['a', 'b', 'c']
    """
    size = _length(iterable) if total is None else total
    if size is None:
        yield from iterable
        return
    try:
        for done, item in enumerate(iterable, 1):
            yield item
            _own.report(done, size)
    finally:
        _own.flush()


def _length(iterable: Iterable[T]) -> float | None:
    try:
        return len(iterable)  # type: ignore[arg-type]
    except (TypeError, ValueError, NotImplementedError, AttributeError):  # data loaders of streams raise all of these
        return None
