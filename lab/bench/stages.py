"""Cost per stage, CPU time in a tight loop: what the code itself costs, without cold caches."""

import time
from collections.abc import Callable

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.core.intake import Batch
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.status import status_of
from carico_agent.node.sampling import NodeReader, Root, derive
from lab.bench.table import Row
from lab.sim.synthetic import SCENARIOS, samples

READ_BUDGET_US, UPDATE_BUDGET_US = 40.0, 500.0
RESOURCES = ("cpu", "memory")


def per_call_us(call: Callable[[], object], runs: int) -> float:
    """The best of five: what others do to the caches only makes it slower."""
    best_s = float("inf")
    for _ in range(5):
        started_s = time.thread_time()
        for _ in range(runs):
            call()
        best_s = min(best_s, time.thread_time() - started_s)
    return 1e6 * best_s / runs


class ClosingModel(CapacityModel):
    """Says whether a sample closed a batch."""

    closed = False

    def _learn(self, batch: Batch) -> None:
        self.closed = True
        super()._learn(batch)


def observe_us(seconds: float) -> tuple[float, float]:
    """Median cost of a sample that only joins the batch, and of one that closes it: the model update, once a second."""
    model = ClosingModel(RESOURCES, ModelConfig(cores=SCENARIOS[0].cores))
    joined, closed = [], []
    for sample in samples(SCENARIOS[0], 1, seconds):
        model.closed, started_s = False, time.thread_time()
        model.observe(sample.t, sample.usage, sample.pods)
        took_s = time.thread_time() - started_s
        (closed if model.closed else joined).append(took_s)
    return 1e6 * sorted(joined)[len(joined) // 2], 1e6 * sorted(closed)[len(closed) // 2]


def measure(quick: bool) -> list[Row]:
    runs = 200 if quick else 1000
    reader = NodeReader(Root("/"))
    a = reader.read(time.monotonic())
    time.sleep(0.1)
    b = reader.read(time.monotonic())
    usage = derive(a, b, RESOURCES)
    model = CapacityModel(RESOURCES, ModelConfig(cores=reader.cores))
    for tick in range(30):
        model.observe(tick * 0.1, usage.values, pods=1)
    estimate, latest = model.estimate(), LatestStatus(5.0)
    observed_us, updated_us = observe_us(60 if quick else 300)
    rows = [
        Row("read: the kernel's files, per tick", per_call_us(lambda: reader.read(0.0), runs), "µs", READ_BUDGET_US),
        Row("derive: usage from two readings, per tick", per_call_us(lambda: derive(a, b, RESOURCES), runs), "µs"),
        Row("observe: a sample joins the batch, per tick", observed_us, "µs"),
        Row("model update: a batch is closed, per second", updated_us, "µs", UPDATE_BUDGET_US),
        Row("estimate, per second", per_call_us(model.estimate, runs), "µs"),
        Row(
            "publish: status made and encoded, per second",
            per_call_us(lambda: latest.publish(status_of("node", RESOURCES, estimate, usage.detail)), runs),
            "µs",
        ),
    ]
    reader.close()
    return rows
