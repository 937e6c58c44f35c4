"""Splitting cores between components, against the same search written down plainly."""

import itertools

import pytest

from carico_agent.plane.allocation import Component, SchedulerLoad, split
from carico_agent.plane.curve import Curve
from carico_agent.plane.queueing import Load
from carico_agent.plane.sizing import size
from carico_agent.plane.weights import ANSWERING, OTHERS, Throttled, adjusted

API = Component(Load(6000, 60, 60), Curve.of([(0, 0.1), (1, 0.9), (4, 2.8), (20, 4)]))
ETCD = Component(Load(9000, 30, 60), Curve.of([(0, 0), (8, 8)]))
SCHEDULER = SchedulerLoad(Load(600, 40, 60), pending=3000)


def cost(a: float, e: float, s: float) -> float:
    one, two = size(API.load, API.curve, a, 0.999), size(ETCD.load, ETCD.curve, e, 0.999)
    if not (one.steady and two.steady):
        return float("inf")
    mean = (6000 * one.performance.wait_s + 9000 * two.performance.wait_s) / 15_000
    return mean + 1 / (min(50, s * 15) + 1)


def test_the_split_is_the_best_on_the_grid() -> None:
    (a, e), s = split([API, ETCD], SCHEDULER, 3.0, 0.999)
    steps = [k / 20 for k in range(1, 61)]
    best = min(cost(x, y, 3 - x - y) for x, y in itertools.product(steps, steps) if x + y <= 3 + 1e-9)
    assert a + e + s == pytest.approx(3)
    assert cost(a, e, s) == pytest.approx(best)


def test_one_component_alone_gets_what_answers_fastest() -> None:
    """Not all four cores: with a little less the smallest queue that will do is shorter, and W with it."""
    (a,), rest = split([API], None, 4.0, 0.999)
    waits = {k / 20: size(API.load, API.curve, k / 20, 0.999) for k in range(1, 81)}
    best = min((one.performance.wait_s, cores) for cores, one in waits.items() if one.steady)
    assert (a, rest) == (pytest.approx(best[1]), 0)


def test_without_enough_for_all_everybody_catches_up_equally_fast() -> None:
    (a, e), s = split([API, ETCD], SCHEDULER, 1.3, 0.999)
    assert (a, e, s) == pytest.approx((0.6, 0.3, 0.4))


def test_throttling_moves_cores_and_weights() -> None:
    before = {
        "api": Throttled(2.0, 1, 0.6, ANSWERING),
        "etcd": Throttled(1.0, 3, 0.3, ANSWERING),
        "scheduler": Throttled(1.0, 1, 0.9, OTHERS),
        "controller": Throttled(1.0, 1, 0.4, OTHERS),
        "unknown": Throttled(1.0, 1, None),
        "content": Throttled(1.0, 1, 0.5, OTHERS),
    }
    after = adjusted(before)
    assert {name: one.weight for name, one in after.items()} == {
        "api": 2,
        "etcd": 3,
        "scheduler": 2,
        "controller": 1,
        "unknown": 1,
        "content": 1,
    }
    assert after["api"].cores == pytest.approx(2 + 0.2 * 0.6 / 1.5)
    assert after["scheduler"].cores == pytest.approx(1 + 0.2 * 0.9 / 1.5)
    assert after["etcd"].cores == after["controller"].cores == 0.9
    assert sum(one.cores for one in after.values()) == pytest.approx(sum(one.cores for one in before.values()))


def test_without_a_bottleneck_nothing_moves() -> None:
    calm = {"api": Throttled(2.0, 1, 0.1, ANSWERING), "etcd": Throttled(1.0, 1, 0.5, ANSWERING)}
    assert adjusted(calm) == calm
