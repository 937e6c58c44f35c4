"""How far off a Pod's CPU pressure is as a measure of waiting, and what repairs it. Prints a table; asserts nothing.

    python -m lab.bench.waiting [--loops 3] [--seconds 25]

Busy loops in cgroups of their own and one group with four of them, more than this machine has CPUs for. Each wants one
core, four want four. What usage + pressure says, read ten times a second and every five seconds; and what usage + the
run delay of the threads says in the same windows.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from carico_agent.node.pods.cgroups import Group, Locator
from carico_agent.node.pods.counter_files import CounterFiles
from carico_agent.node.pods.demand import CounterReading, demand
from carico_agent.node.pods.pods import Pod
from carico_agent.node.pods.run_delay import RunDelay, threads
from lab.bench.pods import processes_in_groups

LOOP = ["sh", "-c", "while :; do :; done"]
FOUR = ["sh", "-c", "for i in 1 2 3; do (while :; do :; done) & done; while :; do :; done"]
WINDOW_S = 5.0


class ObservedGroup:
    """One group: its pressure alone, and the delay of its threads alone."""

    def __init__(self, group: Group, wants: float) -> None:
        self.wants = wants
        self._files = CounterFiles(group, proc="/nowhere")  # finds no thread there
        self._delay = RunDelay(partial(threads, group.unified or group.controllers["cpu"]))
        self._last: CounterReading | None = None
        self.by_pressure: list[float] = []
        self.by_delay: list[float] = []

    def look(self, now_s: float, ends_window: bool) -> None:
        counters = self._files.read(now_s)
        if not ends_window:
            return
        looked = self._delay.read(now_s)
        if self._last is not None:
            elapsed_s = now_s - self._last.t
            found = demand(self._last, counters)
            self.by_pressure.append(found.cpu_cores)
            self.by_delay.append(found.cpu_usage_cores + sum(one.waited_s for one in looked) / elapsed_s)
        self._last = counters

    def close(self) -> None:
        self._files.close()
        self._delay.close()


def observe(observed: list[ObservedGroup], seconds: float, step_s: float) -> None:
    started_s = now_s = time.monotonic()
    window, steps = round(WINDOW_S / step_s), 0
    while now_s - started_s < seconds:
        for one in observed:
            one.look(time.monotonic(), steps % window == 0)
        steps += 1
        time.sleep(max(started_s + steps * step_s - time.monotonic(), 0.0))
        now_s = time.monotonic()


def groups_of(locator: Locator, pods: dict[str, Pod]) -> Iterator[Group]:
    for pod in pods.values():
        if group := locator.at(pod.cgroup):
            yield group


def table(loops: int, seconds: float) -> Iterator[str]:
    yield "| read every [s] | wants [cores] | usage + pressure: mean, least | usage + run delay: mean, least |"
    yield "|---|---|---|---|"
    with ExitStack() as stack:
        single = stack.enter_context(processes_in_groups(loops, LOOP, "one"))
        four = stack.enter_context(processes_in_groups(1, FOUR, "four"))
        for step_s in (0.1, WINDOW_S):
            observed = [ObservedGroup(group, 1.0) for group in groups_of(*single)]
            observed += [ObservedGroup(group, 4.0) for group in groups_of(*four)]
            observe(observed, seconds, step_s)
            for one in observed:
                one.close()
                columns = [f"{statistics.mean(v):.2f}, {min(v):.2f}" for v in (one.by_pressure, one.by_delay)]
                yield f"| {step_s:g} | {one.wants:.0f} | {' | '.join(columns)} |"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.bench.waiting")
    parser.add_argument("--loops", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=26.0)
    wanted = parser.parse_args(arguments)
    for line in table(wanted.loops, wanted.seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
