"""`carico demo`: Pod-Capacity beside a truth that is known, on this machine, without root, containers or Kubernetes.

Busy loops come and go in bursts of 1 to 2 × cores, each is counted as a Pod and measured, and the agent's own sampling
and model make the number. The truth is known by construction: a machine is full when two threads per core want to run,
so 2 × cores − loops − what else wants to run here, at least 0, is the number of loops that still fit.

What else wants to run is counted apart from the model, from another file than the model reads usage from: the threads
that are runnable now (`procs_running` of /proc/stat), less the loops and the reader itself, ten times a second.
"""

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from carico_agent.core import Estimate
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.node.demo.busy_loops import BusyLoops
from carico_agent.node.demo.page import DemoPage
from carico_agent.node.pods.events import Event
from carico_agent.node.pods.processes import ProcessRuntime
from carico_agent.node.publish.status import known
from carico_agent.node.source import Source, open_live
from carico_agent.settings import Settings, override

IDLE_S = 2
"""Before the first burst and between two."""
BURST_S = 5
MAX_LOOPS = 256
SETTLED_S = 2
"""From so many seconds after loops came or went the number is compared with the truth: before, some of them are still
starting. Lines before are shown, too."""
LOOK_S = 0.1
LOOKS = 20
"""What else runs is the mean of so many looks: two seconds, about as long as the model smooths what it reads."""


@dataclass(frozen=True, slots=True)
class Second:
    """One line of the demo."""

    t: int
    """Since the start [s]."""
    loops: int
    others: float
    """Threads of others that want to run."""
    truth: float
    pod_capacity: float | None
    low: float | None
    high: float | None
    mode: str
    compared: bool
    """Whether it counts in the summary."""

    @property
    def error(self) -> float | None:
        return None if self.pod_capacity is None else round(self.pod_capacity - self.truth, 3)

    @property
    def inside(self) -> bool:
        """Whether the interval holds the truth, both as they are printed, with one digit."""
        low, high = round(self.low or 0.0, 1), inf if self.high is None else round(self.high, 1)
        return low <= self.truth <= high

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"error": self.error}


@dataclass(frozen=True, slots=True)
class DemoResult:
    """How good the number was, over the seconds that were compared."""

    compared: int
    mean_absolute_error: float | None
    """[Pods]. None: nothing could be compared."""
    largest_error: float | None
    inside_ratio: float | None
    """Share of the seconds in which the interval held the truth; of all of them, also those that were too early."""
    others: float | None
    """Threads of others that wanted to run, in the mean."""


def summarize(seconds: Sequence[Second]) -> DemoResult:
    """
    >>> summarize([Second(3, 1, 0.0, 3.0, 3.5, 2.5, 4.0, "measured", True)])
    DemoResult(compared=1, mean_absolute_error=0.5, largest_error=0.5, inside_ratio=1.0, others=0.0)
    """
    seen = [second for second in seconds if second.compared and second.error is not None]
    if not seen:
        return DemoResult(0, None, None, None, None)
    errors = [abs(second.error or 0.0) for second in seen]
    inside = [second.inside for second in seconds if second.error is not None]
    others = [second.others for second in seen]
    mean_error, mean_inside, mean_others = (round(sum(each) / len(each), 3) for each in (errors, inside, others))
    return DemoResult(len(seen), mean_error, round(max(errors), 3), mean_inside, mean_others)


def bursts(cores: int, seed: int | None) -> Iterator[int]:
    """How many loops each burst has: every size from 1 to 2 × cores once, in random order, and again."""
    sizes, order = list(range(1, min(2 * cores, MAX_LOOPS) + 1)), random.Random(seed)
    while True:
        order.shuffle(sizes)
        yield from sizes


class Others:
    """What wants to run on this machine beside the loops."""

    def __init__(self, loops: BusyLoops, stat: Path = Path("/proc/stat")) -> None:
        self._loops, self._stat = loops, stat
        self._seen: deque[int] = deque(maxlen=LOOKS)

    async def run(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(LOOK_S)

    def sample(self) -> None:
        runnable = procs_running(self._stat.read_bytes())
        self._seen.append(max(0, runnable - 1 - self._loops.running))  # 1: the thread that reads this runs, too

    @property
    def mean(self) -> float:
        return sum(self._seen) / len(self._seen) if self._seen else 0.0


def truth(cores: int, loops: int, others: float) -> float:
    """How many more loops fit, by the formula that is printed: `others` as it is shown, so that a reader gets the same.

    >>> truth(2, 1, 0.7), truth(2, 0, 4.6)
    (2.3, 0.0)
    """
    return round(max(0.0, 2 * cores - loops - others), 1)


def procs_running(stat: bytes) -> int:
    """
    >>> procs_running(b"cpu 1 2\\nprocs_running 5\\nprocs_blocked 0\\n")
    5
    """
    _, found, rest = stat.partition(b"\nprocs_running ")
    if not found:
        raise ValueError("/proc/stat has no procs_running; carico needs a Linux kernel")
    return int(rest.split(maxsplit=1)[0])


def demo_settings() -> Settings:
    """As the agent's, but only the cpu counts: the loops take next to no memory, and a machine whose memory is in use
    would hide what is to be shown. Nor may the 110 Pods of a kubelet be the limit of a large machine."""
    most = max(110, 4 * (os.cpu_count() or 1))
    return override(Settings(), "model", limits={"cpu": 1.0, "memory": 1.0}, max_pods=most)


async def run_demo(
    seconds: int, seed: int | None = None, offer_page: Callable[[str], None] | None = None
) -> AsyncGenerator[Second]:
    """One item a second. `offer_page` gets the address of the node's page, which is then served meanwhile. OSError,
    ValueError: this machine cannot be read, or starts no processes."""
    settings, runtime, updated, cost = demo_settings(), ProcessRuntime(), asyncio.Event(), OwnCost()
    loop = asyncio.get_running_loop()
    nothing_learned = Path("/nonexistent/carico/model.json")
    source = open_live(settings, "demo", runtime, cost, nothing_learned, partial(_wake, loop, updated), record=None)
    runtime.listen(partial(_count, source, runtime))
    page = None if offer_page is None else DemoPage(source, runtime, cost)
    if page is not None and offer_page is not None:
        runtime.listen(page.mark)
        offer_page(await page.start())
    with BusyLoops(runtime) as loops:
        others = Others(loops)
        others.sample()
        looking = asyncio.create_task(others.run())
        source.producer.start()
        try:
            sizes, changed_t = bursts(source.cores, seed), 0
            for t in range(1, seconds + 1):
                await updated.wait()
                updated.clear()
                source.feed.step()
                if page is not None:
                    page.take()
                yield _second(t, source, loops, others, t - changed_t >= SETTLED_S)
                if t - changed_t >= (BURST_S if loops.running else IDLE_S) and t < seconds:
                    _change(loops, sizes)
                    changed_t = t
                runtime.scan()
        finally:
            looking.cancel()
            source.stop()
            if page is not None:
                await page.stop()


def _wake(loop: asyncio.AbstractEventLoop, updated: asyncio.Event) -> None:
    """From the sampling thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(updated.set)


def _count(source: Source, runtime: ProcessRuntime, event: Event) -> None:
    source.feed.step()  # the count must not overtake samples that were read before it
    source.feed.count(time.monotonic(), runtime.count, event.churn)


def _change(loops: BusyLoops, sizes: Iterator[int]) -> None:
    if loops.running:
        loops.stop()
    else:
        loops.start(next(sizes))


def _second(t: int, source: Source, loops: BusyLoops, others: Others, settled: bool) -> Second:
    estimate: Estimate = source.feed.estimate()
    running, beside = loops.running, round(others.mean, 1)
    return Second(
        t=t,
        loops=running,
        others=beside,
        truth=truth(source.cores, running, beside),
        pod_capacity=known(estimate.pod_capacity, 3),
        low=known(estimate.low, 3),
        high=known(estimate.high, 3),
        mode=estimate.mode,
        compared=settled,
    )
