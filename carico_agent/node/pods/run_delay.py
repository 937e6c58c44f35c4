"""How long the threads of a Pod ran and waited for a CPU: /proc/TID/schedstat [ns]. Needs CONFIG_SCHED_INFO.

Pressure counts a Pod once, however many of its threads wait. The run delay of each thread is exact, and readable by
every user, but a Pod may have hundreds of threads. So only Pods that wait are looked at, and of their threads a bounded
set: one that neither ran nor waited since the last look makes room for another, so that after a few looks the busy ones
are all in it. A kept descriptor takes 3 µs to read, a new one 10 µs (warm). With 48 threads and 12 new ones a look took
0.5 ms on a busy machine, which is a whole tick's budget: hence 32 and 8.

Why not the number of runnable tasks in /proc/stat, which costs nothing: it counts the host's, too, and says nothing
about whose they are.

A TID that is used again is no danger: a kept descriptor belongs to the thread it was opened for, and ends with it.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from math import inf

from carico_agent.node.pods.demand import ThreadTimes
from carico_agent.node.pods.small_files import read_once

MAX_THREADS = 32
MAX_NEW = 8
"""Threads opened in one look."""
LIST_AGAIN_S = 20.0
"""Finding the threads costs more than reading them: 0.2 ms for a Pod with one container (busy machine, cold caches)."""
FIRST_LOOKS = 4
"""A Pod that begins starts threads."""
WINDOW_S = 12.0
"""A thread is compared with what it had done at least this long ago, once it is known for so long [s]. A wait counts
when it ends: of a busy loop with 5 % of a CPU each second is off by a tenth, and its demand read 0.78 cores."""
MAX_GROUPS = 32
MAX_BYTES = 8192
"""Of one list of threads: about a thousand."""
DEPTH = 3


def parse(data: bytes) -> tuple[int, int, int]:
    """Time on a CPU, time waiting for one [ns], and how often it got one.

    >>> parse(b"152535 4473774 2\\n")
    (152535, 4473774, 2)
    """
    ran, waited, runs = data.split()
    return int(ran), int(waited), int(runs)


class RunDelay:
    """The threads of one Pod. `list_threads` finds them; `proc`: where /proc is."""

    def __init__(self, list_threads: Callable[[], Iterable[int]], proc: str = "/proc") -> None:
        self._list_threads, self._proc = list_threads, proc
        self._known: dict[int, tuple[int, list[tuple[float, tuple[int, int, int]]]]] = {}
        """TID -> descriptor; when it was read [s] and what it had run and waited [ns], and how often; oldest first"""
        self._passed: set[int] = set()
        """Idle when last seen; looked at again when all others were."""
        self._looks = 0
        self._listed_s = -inf
        self._unknown = False
        """There are threads that were not read yet."""

    def read(self, now_s: float) -> list[ThreadTimes]:
        """What the known threads did in the last `WINDOW_S`, without those that slept. The first gets to know them."""
        found, idle = [], []
        for tid, (descriptor, looks) in tuple(self._known.items()):
            try:
                now = parse(os.pread(descriptor, 128, 0))
            except (OSError, ValueError):  # the thread has ended
                self._forget(tid)
                continue
            last_s, last = looks[-1]
            if now == last:
                idle.append(tid)
            looks.append((now_s, now))
            while len(looks) > 2 and looks[1][0] <= now_s - WINDOW_S:
                del looks[0]
            before_s, before = looks[0]
            if now != before and now_s > before_s:
                ran_s, waited_s = max(now[0] - before[0], 0) / 1e9, max(now[1] - before[1], 0) / 1e9
                ran_now = max(now[0] - last[0], 0) / 1e9 / (now_s - last_s) if now_s > last_s else 0.0
                found.append(ThreadTimes(ran_s, waited_s, max(now[2] - before[2], 0), now_s - before_s, ran_now))
        self._looks += 1
        if self._looks <= FIRST_LOOKS or not self._known or self._unknown or now_s - self._listed_s >= LIST_AGAIN_S:
            self._listed_s = now_s
            self._exchange(idle, now_s)
        return found

    def close(self) -> None:
        for tid in tuple(self._known):
            self._forget(tid)
        self._passed.clear()

    def _exchange(self, idle: list[int], now_s: float) -> None:
        """Idle threads make room for unknown ones, as far as there are any."""
        new = [tid for tid in self._list_threads() if tid not in self._known and tid not in self._passed]
        self._unknown = len(new) > MAX_NEW
        if not new:
            self._passed.clear()
            return
        room = MAX_THREADS - len(self._known)
        for tid in idle[: max(min(len(new), MAX_NEW) - room, 0)]:
            self._forget(tid)
            self._passed.add(tid)
        for tid in new[: min(MAX_NEW, MAX_THREADS - len(self._known))]:
            self._open(tid, now_s)

    def _open(self, tid: int, now_s: float) -> None:
        try:
            descriptor = os.open(f"{self._proc}/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._passed.add(tid)
            return
        try:
            self._known[tid] = (descriptor, [(now_s, parse(os.pread(descriptor, 128, 0)))])
        except (OSError, ValueError):
            os.close(descriptor)
            self._passed.add(tid)

    def _forget(self, tid: int) -> None:
        os.close(self._known.pop(tid)[0])


def threads(folder: str) -> Iterator[int]:
    """Threads in a cgroup and below; those of other PID namespaces (0) are left out."""
    for directory in groups(folder):
        for name in ("cgroup.threads", "tasks"):  # v2, v1
            try:
                text = read_once(f"{directory}/{name}", MAX_BYTES)
            except OSError:
                continue
            whole = text[: text.rfind(b"\n") + 1]  # a number cut in two is another thread's
            yield from (int(tid) for tid in whole.split() if tid.isdigit() and tid != b"0")
            break


def groups(folder: str, depth: int = DEPTH) -> Iterator[str]:
    """The directory and those below, breadth not more than `MAX_GROUPS`."""
    yield folder
    if not depth:
        return
    try:
        with os.scandir(folder) as entries:
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in below[:MAX_GROUPS]:
        yield from groups(path, depth - 1)
