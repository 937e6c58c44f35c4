"""Who places the jobs. Each sees the workers at one instant, and answers with a worker's number.

`procon` is the original, word for word, flaws included: *ProCon*, algorithms 1 and 2. f is the time between the last
two reports per unit of progress, u the job's part of the CPU used on its worker, i = f/u·(MAX − P) the remaining time,
and c = Σ_t (|erc(t)| − 1) = Σi − max i the contention. What the document leaves open: the factor below which a worker
is not at its limit is lost in the text (0.9 here); ties are random; jobs that have not reported twice have i = 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan
from random import Random
from statistics import mean

from carico_agent.extender.nodes import NodeColumns, NodeState, PendingPod
from carico_agent.extender.policies.least_left import LeastLeft
from carico_agent.progress import procon as literal
from carico_agent.progress.procon import LIMIT, contention
from carico_agent.progress.work_left import estimate
from lab.progress.workers import THREADS, Worker, WorkerJob, shares

IMAGE_MIB = 1000.0
"""Of a deep learning image, one for each model; the document does not say."""
MEMORY_MIB = 65_536
Place = Callable[[Sequence[Worker], WorkerJob, float, Random], int]


def least(values: Sequence[float], rng: Random) -> int:
    """The least, one of them by lot."""
    best = min(values)
    return rng.choice([at for at, value in enumerate(values) if value <= best + 1e-9])


def at_random(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    return rng.randrange(len(workers))


def round_robin() -> Place:
    turn = iter(range(10**9))
    return lambda workers, job, now_s, rng: next(turn) % len(workers)


def min_count(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    return least([len(worker.jobs) for worker in workers], rng)


def kube_default(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    """LeastAllocated for Pods without requests: each counts as 100m of 16 cores and 200 MB of 64 GB, scores are whole
    numbers to 100, and equal ones are drawn by lot."""
    scores = []
    for worker in workers:
        cpu = (16_000 - 100 * (len(worker.jobs) + 1)) * 100 // 16_000
        memory = (64_000 - 200 * (len(worker.jobs) + 1)) * 100 // 64_000
        scores.append(-((cpu + memory) // 2))
    return least(scores, rng)


# ---- Kubernetes 1.15, which the document compares with
#
# Checked against the source of k8s.io/kubernetes v1.15.12, pkg/scheduler: LeastRequested, BalancedResourceAllocation
# and ImageLocality have weight 1 and whole scores up to 10; SelectorSpread knows Services, ReplicationControllers,
# ReplicaSets and StatefulSets, not Jobs, and the other default priorities are the same for all workers of these runs.
# Of equal scores selectHost takes the one at (number of decisions so far) modulo (how many are equal). Their order is
# that in which up to 16 goroutines found the nodes feasible, so it is not fixed: between `warm` and `raced`.


def kube_1_15(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    """All images are on all workers: the scores tie, and ties go in turn, as if nodes came in one order always."""
    return _in_turn(workers, [_scores_1_15(worker) for worker in workers])


def kube_1_15_raced(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    """The same with nodes found in any order."""
    return least([-_scores_1_15(worker) for worker in workers], rng)


def kube_1_15_cold(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    """No image is anywhere at the beginning. A worker that has pulled one scores higher for all later Pods of it."""
    image = job.workload.name
    spread = sum(image in worker.images for worker in workers) / len(workers)
    scores = [_scores_1_15(worker) + (_locality(spread) if image in worker.images else 0) for worker in workers]
    chosen = _in_turn(workers, scores)
    workers[chosen].images.add(image)
    return chosen


def _scores_1_15(worker: Worker) -> int:
    """LeastRequested and BalancedResourceAllocation of a Pod without requests (100m, 200 MiB), whole numbers to 10. One
    Pod more or less is no difference until there are sixteen.

    >>> [_scores_1_15(Worker(Random(1)))]
    [18]
    """
    cpu, memory = 100 * (len(worker.jobs) + 1), 200 * (len(worker.jobs) + 1)
    least_requested = ((16_000 - cpu) * 10 // 16_000 + (MEMORY_MIB - memory) * 10 // MEMORY_MIB) // 2
    return least_requested + int((1 - abs(cpu / 16_000 - memory / MEMORY_MIB)) * 10)


def _locality(spread: float) -> int:
    """ImageLocality: 23 to 1000 MiB on 0 to 10, of the image's size times the part of the nodes that have it.

    >>> [_locality(nodes / 4) for nodes in range(5)]
    [0, 2, 4, 7, 10]
    """
    return int(10 * (min(max(IMAGE_MIB * spread, 23.0), 1000.0) - 23.0) / (1000.0 - 23.0))


def _in_turn(workers: Sequence[Worker], scores: Sequence[int]) -> int:
    """selectHost counts its decisions and takes that one of the best; lots came later."""
    best = [at for at, score in enumerate(scores) if score == max(scores)]
    chosen = best[workers[0].decisions % len(best)]
    workers[0].decisions += 1
    return chosen


# ---- ProCon


def remaining_s(job: WorkerJob, share: float) -> float:
    """i = f/u·(MAX − P), equation 3, by the code of the agent."""
    return literal.remaining_s(list(job.reports), job.workload.steps, share)


def contention_by_steps(remaining: Sequence[float]) -> int:
    """The same as algorithm 1 counts it, second by second, for whole seconds.

    >>> contention_by_steps([3, 5, 9])
    8
    """
    c = 0
    for t in range(int(max(remaining, default=0))):
        c += sum(i > t for i in remaining) - 1
    return c


def is_below_limit(worker: Worker) -> bool:
    """Algorithm 1, lines 3 and 4."""
    return sum(shares([job.workload.threads for job in worker.jobs])) < LIMIT * THREADS


def procon_contention(worker: Worker) -> float:
    rates = shares([job.workload.threads for job in worker.jobs])
    return contention([remaining_s(job, rate / sum(rates)) for job, rate in zip(worker.jobs, rates, strict=True)])


def expected_contention(worker: Worker) -> tuple[float, float]:
    """(c, Σi) if the newcomer came here: algorithm 2, lines 13 to 19."""
    found = [remaining_s(job, 1 / (len(worker.jobs) + 1)) for job in worker.jobs]
    return contention(found), sum(found)


def procon(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    """Algorithm 2; ties by lot."""
    below = [at for at, worker in enumerate(workers) if is_below_limit(worker)]
    if below:
        return below[least([procon_contention(workers[at]) for at in below], rng)]
    return least([expected_contention(worker)[0] for worker in workers], rng)


def procon_ties(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    """The same with ties broken: empty workers first, then the one with less Σi."""
    empty = [at for at, worker in enumerate(workers) if not worker.jobs]
    if empty:
        return rng.choice(empty)
    expected = [expected_contention(worker) for worker in workers]
    best = min(c for c, _ in expected)
    return least([total if c <= best + 1e-9 else float("inf") for c, total in expected], rng)


# ---- ours


def least_left(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    """The extender's policy over the agent's estimates; workers in an order drawn by lot, as kube-scheduler does with
    equal scores."""
    return _by_policy(workers, now_s, rng, lambda state: state)


def _by_policy(workers: Sequence[Worker], now_s: float, rng: Random, change: Callable[[NodeState], NodeState]) -> int:
    order = list(range(len(workers)))
    rng.shuffle(order)
    states = [change(_state(workers[at], now_s)) for at in order]
    scores = LeastLeft().scores(NodeColumns.of(states), PendingPod("new"), now_s)
    return order[scores.index(max(scores))]


def _state(worker: Worker, now_s: float) -> NodeState:
    found = [estimate(job.reports, job.workload.steps, now_s).cpu_s for job in worker.jobs]
    known = [left for left in found if left == left]
    whole = [job.reports[-1].cpu_s + left for job, left in zip(worker.jobs, found, strict=True) if left == left]
    state = NodeState("w", 1e3, now_s, 60.0, assigned=len(found), cpu=THREADS)
    state.work_jobs, state.work_s, state.lefts_s = len(known), float(sum(known)), tuple(known)
    state.run_s = mean(whole) if whole else nan
    return state


def least_sum(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    """What least-left was before: Σ of the work left, without regard to the newcomer."""
    return _by_policy(workers, now_s, rng, lambda state: replace(state, lefts_s=(), run_s=nan))


def oracle(workers: Sequence[Worker], job: WorkerJob, now_s: float, rng: Random) -> int:
    """Knows the exact work left of all jobs and of the newcomer, and takes the worker on which all of them together end
    soonest; it does not know who comes next."""
    return least([_delay_s(worker, job) for worker in workers], rng)


def _delay_s(worker: Worker, job: WorkerJob) -> float:
    lefts = [one.left_s for one in worker.jobs]
    return total_s([*lefts, job.left_s]) - total_s(lefts)


def total_s(lefts: Sequence[float], threads: float = THREADS) -> float:
    """Σ of the completion times under processor sharing, of jobs that want all threads: the k-th to end waits until all
    have had as much as it needs.

    >>> total_s([16.0, 16.0]), total_s([16.0, 48.0])
    (4.0, 6.0)
    """
    ordered, now_s, before, total = sorted(lefts), 0.0, 0.0, 0.0
    for at, left in enumerate(ordered):
        now_s += (left - before) * (len(ordered) - at) / threads
        before, total = left, total + now_s
    return total


PLACERS: dict[str, Place] = {
    "random": at_random,
    "Kubernetes 1.15, cold": kube_1_15_cold,
    "Kubernetes 1.15, warm": kube_1_15,
    "Kubernetes 1.15, raced": kube_1_15_raced,
    "kube-scheduler default": kube_default,
    "least count": min_count,
    "ProCon, literal": procon,
    "ProCon, ties broken": procon_ties,
    "Σ of the work left": least_sum,
    "least-left": least_left,
    "oracle": oracle,
}
