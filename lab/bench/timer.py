"""Thread or event loop: the same reads at 10 Hz by a sleeping thread and by an asyncio timer, in the same window.

Runs itself as a child: `python -m lab.bench.timer thread|asyncio`.
"""

import asyncio
import sys
import time
from contextlib import ExitStack

from carico_agent.lib.supervise.ticker import Ticker
from carico_agent.node.sampling import NodeReader, Root
from lab.bench.process import cpu_s, running
from lab.bench.table import Row

PERIOD_S = 0.1
WORKLOADS = {"thread": "sleeping thread (Ticker)", "asyncio": "asyncio timer"}


def by_thread(reader: NodeReader) -> None:
    Ticker(PERIOD_S, lambda now_s: void(reader.read(now_s))).run()


def by_asyncio(reader: NodeReader) -> None:
    loop = asyncio.new_event_loop()

    def tick(due_s: float) -> None:
        reader.read(loop.time())
        loop.call_at(due_s + PERIOD_S, tick, due_s + PERIOD_S)

    loop.call_soon(tick, loop.time())
    loop.run_forever()


def void(_: object) -> None:
    """Drop a result."""


def measure(window_s: float) -> list[Row]:
    with ExitStack() as stack:
        children = {
            workload: stack.enter_context(running([sys.executable, "-m", "lab.bench.timer", workload]))
            for workload in WORKLOADS
        }
        time.sleep(1.5)
        before, started_s = {workload: cpu_s(child.pid) for workload, child in children.items()}, time.monotonic()
        time.sleep(window_s)
        elapsed_s = time.monotonic() - started_s
        percent = {
            workload: 100 * (cpu_s(child.pid) - before[workload]) / elapsed_s for workload, child in children.items()
        }
    rows = [
        Row(f"10 Hz reads by {label}: CPU", percent[workload], "% of a core") for workload, label in WORKLOADS.items()
    ]
    return [*rows, Row("asyncio timer / thread", percent["asyncio"] / percent["thread"], "x")]


if __name__ == "__main__":
    reader = NodeReader(Root("/"))
    by_thread(reader) if sys.argv[1] == "thread" else by_asyncio(reader)
