"""The chain against textbook queues, and where doubles end."""

import math
from fractions import Fraction

import pytest

from carico_agent.plane.curve import Curve
from carico_agent.plane.queueing import Chain, Load, log_series, series_mean

TEXTBOOK = [  # servers, capacity K, λ with μ = 1: p_reject, L, W
    (1, 10, 0.8, 0.02349286, 2.966314, 3.797098),
    (2, 10, 1.6, 0.02637860, 3.330681, 2.138075),
]


@pytest.mark.parametrize(("servers", "capacity", "arrivals", "rejected", "present", "wait_s"), TEXTBOOK)
def test_textbook_queues(servers, capacity, arrivals, rejected, present, wait_s) -> None:
    curve = Curve.of([(0, 0), (servers, servers)])
    found = Chain(Load(arrivals * 60, arrivals * 60, 60), curve, servers, servers).performance(capacity - servers)
    assert found.reject_ratio == pytest.approx(rejected, abs=1e-6)
    assert found.present == pytest.approx(present, abs=1e-6)
    assert found.wait_s == pytest.approx(wait_s, abs=1e-6)


def exact(chain: Chain, curve: Curve, cores: float, queue: int) -> tuple[float, float, float, float]:
    """The sums of equations (12) to (14) as they stand, in fractions."""
    used = [Fraction(min(cores, curve.cores(min(n, chain.seats)))) for n in range(1, chain.seats + queue + 1)]
    a = [Fraction(1)]
    for cores_n in used:
        a.append(a[-1] * Fraction(chain.load.core_s) / Fraction(chain.load.window_s) / cores_n)
    total = sum(a)
    present = sum(n * weight for n, weight in enumerate(a)) / total
    queued = sum((n - chain.seats) * weight for n, weight in enumerate(a) if n > chain.seats) / total
    rejected = a[-1] / total
    arrivals = Fraction(chain.load.requests) / Fraction(chain.load.window_s)
    return float(rejected), float(present), float(queued), float(present / (arrivals * (1 - rejected)))


@pytest.mark.parametrize("load_cores", [0.01, 0.5, 0.999999, 1.0, 1.000001, 3.0, 1e6])
@pytest.mark.parametrize("queue", [0, 1, 7, 150])
def test_equations_in_fractions(load_cores: float, queue: int) -> None:
    """Also at, near and far beyond saturation, where differences of nearly equal numbers would lose all digits."""
    curve = Curve.of([(0, 0.1), (1, 0.7), (3, 1.5), (6, 0.9), (12, 1.25)])
    chain = Chain(Load(600, load_cores * 60, 60), curve, 1.0, 12)
    found = chain.performance(queue)
    rejected, present, queued, wait_s = exact(chain, curve, 1.0, queue)
    assert found.reject_ratio == pytest.approx(rejected, rel=1e-9)
    assert found.present == pytest.approx(present, rel=1e-9)
    assert found.queued == pytest.approx(queued, rel=1e-9, abs=1e-12)
    assert found.wait_s == pytest.approx(wait_s, rel=1e-9)
    assert found.executing == pytest.approx(present - queued, rel=1e-9)


def test_a_thousand_seats_beyond_the_range_of_doubles() -> None:
    """a_n = 500ⁿ/n! passes 1e308 long before n = 1000."""
    curve = Curve.of([(0, 0), (1000, 1000)])
    found = Chain(Load(500, 500, 1), curve, 1000, 1000).performance(0)
    assert found.present == pytest.approx(500, rel=1e-9)  # M/M/c far from full: λ/μ servers are busy
    assert found.wait_s == pytest.approx(1.0, rel=1e-9)


def test_a_queue_of_a_billion() -> None:
    curve = Curve.of([(1, 1)])
    found = Chain(Load(120, 120, 60), curve, 1, 1).performance(10**9)
    assert found.reject_ratio == pytest.approx(0.5)
    assert found.queued == pytest.approx(10**9 - 1, rel=1e-9)  # Σ (q − j)·2^−j: the mean is one below the end


def test_a_concurrency_that_serves_nobody_keeps_the_component_there() -> None:
    """f(2) = 0: whoever comes second finds nobody to finish; one request less is never seen again."""
    curve = Curve.of([(1, 1), (2, 0), (3, 1)])
    found = Chain(Load(30, 30, 60), curve, 1, 3).performance(0)
    assert found.present == pytest.approx((2 * 1 + 3 * 0.5) / 1.5)


def test_what_an_overloaded_window_leaves() -> None:
    chain = Chain(Load(60_000, 300, 60), Curve.of([(0, 0), (4, 4)]), 4, 4)
    assert not chain.steady
    assert chain.backlog() == pytest.approx(12_000)  # (300 − 240)/300 of the requests
    assert Chain(Load(60_000, 120, 60), Curve.of([(0, 0), (4, 4)]), 4, 4).backlog() == 0


@pytest.mark.parametrize("ratio", [0.2, 0.9, 1.0, 1.0 + 1e-12, 1.1, 40.0])
@pytest.mark.parametrize("last", [0, 1, 5, 60])
def test_series(ratio: float, last: int) -> None:
    r = Fraction(ratio)
    terms = [r**j for j in range(last + 1)]
    assert log_series(math.log(ratio), last) == pytest.approx(math.log(sum(terms)), rel=1e-9, abs=1e-12)
    mean = float(sum(j * term for j, term in enumerate(terms)) / sum(terms))
    assert series_mean(math.log(ratio), last) == pytest.approx(mean, rel=1e-9, abs=1e-11)
