"""How parallel a Pod really is: all its threads, and those that want a CPU at the same instant.

Why not from the counters: `throttled_usec` is summed over CPUs, so (throttled_usec/nr_throttled + t_q)/t_p should be
the number of threads; on Linux 6.18 it gave 0.7 for one thread and 1.2 for two (measured, quota 50/100 ms), because
throttling there begins when a task returns to user space. A thread that waits for its quota is in state R, so the
states can simply be counted.
"""

from dataclasses import dataclass

import psutil

from carico_agent.plugin_api import View

MAX_THREADS = 512


@dataclass(frozen=True, slots=True)
class Threads:
    total: int
    runnable: int


def count(view: View, cgroup: str) -> Threads | None:
    """Threads of one cgroup right now; None when they cannot be seen."""
    procs = view.read(cgroup, "cgroup.procs")
    if procs is None:
        return None
    total = runnable = 0
    for pid in procs.split():
        try:
            threads = psutil.Process(int(pid)).threads()
        except psutil.Error:  # ended meanwhile, or not ours to see
            continue
        total += len(threads)
        states = (_state(view.node.proc_root, pid, thread.id) for thread in threads[:MAX_THREADS])
        runnable += sum(state == "R" for state in states)
    return Threads(total, runnable)


def _state(proc_root: str, pid: str, thread: int) -> str:
    try:
        with open(f"{proc_root}/{pid}/task/{thread}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]  # the name before it may contain anything
    except (OSError, IndexError):
        return "?"
