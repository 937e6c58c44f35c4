"""The headline's interval: how many of the next arrivals fit, against sequences drawn one Pod at a time."""

import random
from math import inf, nan

import numpy as np
import pytest

from carico_agent.core import CapacityModel, ModelConfig, PodSample
from carico_agent.core.renewal import Arrival, Unsure, count, dispersion

BATCH, WEB, CACHE = Arrival([1.0], [0.05], 0.52), Arrival([0.1], [0.01], 0.29), Arrival([0.001], [0.0002], 0.19)


def drawn(room: Unsure, arrivals: list[Arrival], mean: Unsure, sequences: int = 2000) -> tuple[float, float]:
    """The same 5 % and 95 % points by brute force: Pod after Pod, until one does not fit any more."""
    rng = random.Random(7)
    found = []
    for _ in range(sequences):
        off = [max(0.1, 1 + sd / c * rng.gauss(0, 1)) for c, sd in zip(mean.value, mean.sd, strict=True)]
        rest = [max(0.0, x + sd * rng.gauss(0, 1)) / f for x, sd, f in zip(room.value, room.sd, off, strict=True)]
        fit, part = 0, 1.0
        while part >= 1 and fit < 3000:
            workload = rng.choices(arrivals, [a.share for a in arrivals])[0]
            own = rng.gauss(0, 1)
            cost = [max(1e-9, c + s * own) for c, s in zip(workload.cost, workload.spread, strict=True)]
            part = min(x / c for x, c in zip(rest, cost, strict=True))
            if part >= 1:
                fit, rest = fit + 1, [x - c for x, c in zip(rest, cost, strict=True)]
        found.append(fit + part)
    return float(np.quantile(found, 0.05)), float(np.quantile(found, 0.95))


TWO = [Arrival([0.02, 0.001], [0.002, 0.0002], 0.7), Arrival([0.001, 0.03], [0.0002, 0.004], 0.3)]
TWO_MEAN = Unsure([0.0143, 0.0097], [0.0004, 0.0005])


@pytest.mark.parametrize(
    ("room", "arrivals", "mean"),
    [
        (Unsure([2.65], [0.02]), [BATCH, WEB, CACHE], Unsure([0.549], [0.01])),
        (Unsure([0.3, 0.05], [0.01, 0.005]), TWO, TWO_MEAN),
        (Unsure([0.1, 0.8], [0.01, 0.005]), TWO, TWO_MEAN),
        (Unsure([0.02, 0.3], [0.01, 0.005]), TWO, TWO_MEAN),
        (Unsure([0.6, 0.5], [0.01, 0.005]), TWO, TWO_MEAN),
        (Unsure([0.9, 0.9], [0.01, 0.005]), TWO, TWO_MEAN),
    ],
    ids=["the specification's", "by memory", "by cpu", "nearly full", "blocks", "larger blocks"],
)
def test_the_points_are_those_of_drawn_sequences(room: Unsure, arrivals: list[Arrival], mean: Unsure) -> None:
    low, high = drawn(room, arrivals, mean)
    found_low, found_high = count(room, arrivals, mean)
    width = high - low
    assert found_low == pytest.approx(low, abs=0.12 * width)
    assert found_high == pytest.approx(high, abs=0.12 * width)


def test_with_one_workload_of_equal_pods_it_is_room_over_cost() -> None:
    alone = [Arrival([0.125], [0.0], 1.0)]
    assert count(Unsure([0.6], [0.0]), alone, Unsure([0.125], [0.0])) == pytest.approx((4.8, 4.8))
    low, high = count(Unsure([0.6], [0.0125]), alone, Unsure([0.125], [0.0]))
    assert (low, high) == pytest.approx((4.8 - 0.1645, 4.8 + 0.1645), abs=0.01)  # 1.645 standard deviations of the room


def test_what_is_unknown_limits_nothing_and_a_full_node_has_no_room() -> None:
    assert count(Unsure([nan], [nan]), [BATCH], Unsure([1.0], [0.1])) == (0.0, inf)
    known = count(
        Unsure([2.65, 0.5], [0.02, 0.01]), [Arrival([1.0, nan], [0.05, nan], 1.0)], Unsure([1.0, nan], [0.1, nan])
    )
    assert known == pytest.approx(count(Unsure([2.65], [0.02]), [BATCH], Unsure([1.0], [0.1])), abs=0.05)
    low, high = count(Unsure([-0.2], [0.01]), [BATCH], Unsure([1.0], [0.1]))
    assert low == high == 0.0


def test_the_same_question_has_the_same_answer() -> None:
    ask = Unsure([2.65], [0.02]), [BATCH, WEB, CACHE], Unsure([0.549], [0.01])
    assert count(*ask) == count(*ask)


def test_a_rare_heavy_workload_makes_the_interval_long_not_wrong() -> None:
    rare = [Arrival([0.0001], [0.0], 0.98), Arrival([0.1], [0.005], 0.02)]
    low, high = count(Unsure([0.3], [0.01]), rare, Unsure([0.0021], [0.0001]))
    assert 40 < low < 70 and 270 < high < 380  # drawn: 48 and 313


@pytest.mark.parametrize(
    ("row", "least", "most"),
    [
        ([1.0, 0.1] * 32, 0.0, 0.3),
        (([1.0] * 8 + [0.1] * 8) * 4, 2.0, 8.0),
        ([0.5] * 64, 1.0, 1.0),
        ([1.0, 0.1, 0.1], 1.0, 1.0),
        ([], 1.0, 1.0),
    ],
    ids=["rounds", "rollouts", "all alike", "too few", "none"],
)
def test_dispersion_tells_rounds_from_rollouts(row: list[float], least: float, most: float) -> None:
    assert least <= dispersion(row, 6) <= most


def test_pods_that_come_in_rounds_are_foreseen_better_than_pods_that_come_at_random() -> None:
    mix = [Arrival([0.2], [0.01], 0.5), Arrival([0.02], [0.001], 0.5)]
    ask = Unsure([0.6], [0.002]), mix, Unsure([0.11], [0.001])
    rounds = count(*ask, order=[0, 1] * 32)
    rollouts = count(*ask, order=([0] * 8 + [1] * 8) * 4)
    widths = [high - low for low, high in (rounds, count(*ask), rollouts)]
    assert widths[0] < 0.6 * widths[1]
    assert widths[2] > 0.8 * widths[1]  # where a rollout ends is not foreseen


CORES = 4
WORKLOADS = {"batch": (1.0, 52), "web": (0.1, 29), "cache": (0.001, 19)}


def mixed_node(**config: int) -> CapacityModel:
    """The specification's node: batch, web and cache Pods come as 52, 29 and 19 of a hundred; 2.65 cores of room."""
    model, rng = CapacityModel(("cpu",), ModelConfig(cores=CORES, **config)), random.Random(3)
    order = [workload for workload, (_, share) in WORKLOADS.items() for _ in range(share)]
    rng.shuffle(order)
    base = (2 * CORES - 2.65 - 1.1) / (2 * CORES)
    running: list[PodSample] = []
    for second, workload in enumerate(order * 4):
        for tick in range(10):
            used = base + sum(pod.usage[0] for pod in running)
            model.observe(second + tick / 10, [used], pods=len(running))
        if second % 5 == 0:
            model.observe_pods(second + 0.95, running)
        if second % 12 == 0:
            cost = WORKLOADS[workload][0] / (2 * CORES)
            running = [*running[-2:], PodSample(f"{workload}-{second}", workload, (cost,))]
    return settled(model, base)


def settled(model: CapacityModel, base: float) -> CapacityModel:
    """One batch and one web Pod run at the end: 2.65 cores of room."""
    end = [PodSample("batch-z", "batch", (1 / (2 * CORES),)), PodSample("web-z", "web", (0.1 / (2 * CORES),))]
    for tick in range(600):
        t = 400 + tick / 10
        model.observe(t, [base + 1.1 / (2 * CORES)], pods=2)
        if tick % 50 == 0:
            model.observe_pods(t, end)
    return model


def test_a_node_with_an_idle_workload_does_not_say_that_a_hundred_pods_may_fit() -> None:
    """Until the renewal count it said 4.9 [2.7–104.0]: "and if only the cheapest workload came?" """
    e = mixed_node(max_pods=110).estimate()
    assert e.mode == "measured"
    assert e.pod_capacity == pytest.approx(4.8, abs=1.0)
    assert 2.0 <= e.low <= 3.2
    assert 7.0 <= e.high <= 13.0


def test_the_interval_ends_at_the_max_pods_a_node_may_run() -> None:
    e = mixed_node(max_pods=7).estimate()
    assert e.low <= e.pod_capacity <= e.high == 5.0  # two run
