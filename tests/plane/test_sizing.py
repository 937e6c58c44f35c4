"""Seats and queue: the specification's oracles, and a thousand random tables against counting in fractions."""

import itertools
import math
import random
from fractions import Fraction

import pytest

from carico_agent.plane.curve import Curve
from carico_agent.plane.queueing import Load
from carico_agent.plane.sizing import NoRecommendation, size

FIGURE = [
    (0, 0.12),
    (1, 1.41),
    (2, 2.21),
    (3, 2.97),
    (5, 4.27),
    (10, 6.63),
    (20, 8.61),
    (30, 9.63),
    (50, 10.33),
    (100, 10.43),
    (200, 10.46),
    (223, 10.97),
    (349, 10.24),
    (600, 11.26),
]
"""The API server of *MerKury*'s figure 5, as read off."""


@pytest.mark.parametrize(
    ("cores", "seats", "queue", "wait_ms"), [(6, 9, 24, 8.863), (6.63, 10, 15, 7.457), (8, 17, 3, 6.997)]
)
def test_the_figure(cores: float, seats: int, queue: int, wait_ms: float) -> None:
    found = size(Load(60_000, 300, 60), Curve.of(FIGURE), cores, 0.999)
    assert (found.seats, found.queue, found.steady) == (seats, queue, True)
    assert round(found.performance.wait_s * 1000, 3) == wait_ms


Table = list[tuple[int, Fraction]]


def f(table: Table, x: int) -> Fraction:
    if x <= table[0][0]:
        return table[0][1]
    for (x0, f0), (x1, f1) in itertools.pairwise(table):
        if x0 <= x <= x1:
            return f0 + (f1 - f0) * Fraction(x - x0, x1 - x0)
    return table[-1][1]


def brute(table: Table, load: tuple[int, Fraction, int], cores: Fraction, p: Fraction) -> tuple[int, int, float, float]:
    """The rule by trying one number after the other, without a rounding error."""
    requests, core_s, window_s = load
    curve = [f(table, x) for x in range(table[-1][0] + 2)]
    useful = min(cores, max(curve[1:]))
    seats = next(x for x in range(1, len(curve)) if curve[x] >= useful)
    rate = min(useful, curve[seats])
    need = core_s / window_s
    weights = [Fraction(1)]
    for n in range(1, seats + 1):
        weights.append(weights[-1] * need / min(useful, curve[n]))
    total, moment, queue = sum(weights), sum(n * weight for n, weight in enumerate(weights)), 0
    last = weights[-1]
    wanted = None if rate > need else math.ceil((core_s - rate * window_s) * requests / core_s)
    while queue != wanted and (wanted is not None or 1 - last / total < p):
        queue += 1
        last = last * need / rate
        total += last
        moment += (seats + queue) * last
    rejected = last / total
    arrivals = Fraction(requests, window_s)
    return seats, queue, float(rejected), float(moment / total / (arrivals * (1 - rejected)))


def draw(choose: random.Random) -> tuple[Table, tuple[int, Fraction, int], Fraction, Fraction]:
    xs = sorted(choose.sample(range(40), choose.randint(1, 8)))
    table = [(x, Fraction(choose.randint(1, 900), 100)) for x in xs]
    if choose.random() < 0.4:  # the rest is not monotone
        table = list(zip(xs, sorted(value for _, value in table), strict=True))
    cores = Fraction(choose.randint(5, 1000), 100)
    useful = min(cores, max(f(table, x) for x in range(1, 41)))
    busy = Fraction(choose.randint(5, 130), 100)
    window_s = choose.choice([1, 10, 60])
    core_s = Fraction(round(float(useful * busy) * window_s * 100) or 1, 100)
    if abs(core_s / window_s - useful) < Fraction(1, 50) * useful:
        core_s = core_s / 2
    p = Fraction(choose.choice(["0", "0.5", "0.8", "0.9", "0.99", "0.999", "0.9999"]))
    return table, (choose.randint(1, 300), core_s, window_s), cores, p


def test_a_thousand_random_tables() -> None:
    choose = random.Random(19)
    shapes = {"steady": 0, "unsteady": 0, "falling": 0}
    for _ in range(1000):
        table, load, cores, p = draw(choose)
        seats, queue, rejected, wait_s = brute(table, load, cores, p)
        curve = Curve.of([(x, float(value)) for x, value in table])
        found = size(Load(load[0], float(load[1]), load[2]), curve, float(cores), float(p))
        assert (found.seats, found.queue) == (seats, queue), (table, load, cores, p)
        assert found.performance.reject_ratio == pytest.approx(rejected, rel=1e-6, abs=1e-12)
        assert found.performance.wait_s == pytest.approx(wait_s, rel=1e-6)
        shapes["steady" if found.steady else "unsteady"] += 1
        shapes["falling"] += any(b[1] < a[1] for a, b in itertools.pairwise(table))
    assert min(shapes.values()) > 100, shapes


def test_a_cap_that_the_curve_never_reaches() -> None:
    found = size(Load(60_000, 300, 60), Curve.of(FIGURE), 64, 0.999)
    assert (found.cores, found.seats, found.queue) == (11.26, 600, 0)


def test_a_million_seats() -> None:
    found = size(Load(1e9, 4e7, 60), Curve.of([(0, 0), (1_000_000, 1_000_000)]), 1_000_000, 0.999)
    assert found.seats == 1_000_000
    assert found.performance.wait_s == pytest.approx(0.04, rel=1e-3)


def test_fractions_of_a_request_in_a_table() -> None:
    """Means are measured; seats are whole."""
    found = size(Load(60, 30, 60), Curve.of([(0.5, 0.2), (2.5, 1.0), (3.5, 0.6)]), 0.95, 0.9)
    assert found.seats in (2, 3)
    assert found.cores <= 0.95


@pytest.mark.parametrize("load", [Load(0, 1, 60), Load(5, 0, 60), Load(math.nan, 1, 60), Load(5, -1, 60)])
def test_nothing_to_size(load: Load) -> None:
    with pytest.raises(NoRecommendation):
        size(load, Curve.of(FIGURE), 6, 0.999)


@pytest.mark.parametrize("availability", [1.0, -0.1, math.nan])
def test_no_queue_rejects_nobody_ever(availability: float) -> None:
    with pytest.raises(NoRecommendation, match="below 1"):
        size(Load(60_000, 300, 60), Curve.of(FIGURE), 6, availability)
