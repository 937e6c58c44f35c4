"""The workload of the thesis, and the home worker and cloud nodes that run it: what lab.burst.sim steers."""

import random
from collections import deque
from dataclasses import dataclass, field

PLACES = 3
TRAINING_S, INFERENCE_S = 200.0, 61.0
FIRST_BOOT_S, NEXT_BOOT_S = 360.0, 300.0
"""From the order to the node: a cluster with its first node, and one more node (5.4: ready at 407, 767 and 1067 s)."""


@dataclass(eq=False)
class WorldJob:
    """One Job and what became of it [s]."""

    workload: str
    arrival_s: float
    duration_s: float
    start_s: float = float("nan")
    where: str = "home"

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


def workload(seed: int) -> list[WorldJob]:
    """90 Jobs after the document's description, in order of arrival."""
    drawn = random.Random(seed)
    models = ("arpu", "saved", "fraud")
    jobs = [
        WorldJob(f"train-{model}", k * every_s, TRAINING_S)
        for model, every_s in zip(models, (180.0, 160.0, 140.0), strict=True)
        for k in range(10)
    ]
    for model in models:
        arrivals = [0.0, *(drawn.uniform(0.0, 1800.0) for _ in range(19))]
        jobs += [WorldJob(f"infer-{model}", arrival_s, INFERENCE_S) for arrival_s in arrivals]
    return sorted(jobs, key=lambda job: job.arrival_s)


@dataclass
class Node:
    """One worker in the cloud: ordered, ready, gone [s]."""

    ordered_s: float
    ready_s: float
    gone_s: float | None = None
    idle_since_s: float = 0.0
    running: list[WorldJob] = field(default_factory=list)


@dataclass
class World:
    """The state of a run. A system sees this, moves Jobs and orders nodes."""

    jobs: list[WorldJob]
    price_per_h: float
    master_per_h: float
    home: deque[WorldJob] = field(default_factory=deque)
    cloud: deque[WorldJob] = field(default_factory=deque)
    running: list[WorldJob] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    done: list[WorldJob] = field(default_factory=list)
    cluster_s: list[tuple[float, float | None]] = field(default_factory=list)
    trace: list[tuple[float, int, int, int, int, int]] = field(default_factory=list)

    def ready(self, now_s: float) -> list[Node]:
        return [node for node in self.nodes if node.ready_s <= now_s and node.gone_s is None]

    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.gone_s is None]

    def order(self, now_s: float, ready_s: float) -> None:
        if not self.alive():
            self.cluster_s.append((now_s, None))
        self.nodes.append(Node(now_s, ready_s, idle_since_s=ready_s))

    def remove(self, node: Node, now_s: float) -> None:
        node.gone_s = now_s
        if not self.alive():
            self.cluster_s[-1] = (self.cluster_s[-1][0], now_s)

    def step(self, now_s: float) -> None:
        """Ends and starts at `now_s`."""
        for running in (self.running, *(node.running for node in self.nodes)):
            for job in [job for job in running if job.end_s <= now_s]:
                running.remove(job)
                self.done.append(job)
        self._fill(self.running, self.home, now_s, "home")
        for node in self.ready(now_s):
            self._fill(node.running, self.cloud, now_s, "cloud")
            node.idle_since_s = now_s if node.running else node.idle_since_s

    @staticmethod
    def _fill(running: list[WorldJob], queue: deque[WorldJob], now_s: float, where: str) -> None:
        while queue and len(running) < PLACES:
            job = queue.popleft()
            job.start_s, job.where = now_s, where
            running.append(job)
