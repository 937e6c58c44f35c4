"""A component as a birth-death chain: requests arrive, some execute (seats), some wait (queue), the rest are rejected.

Source: *MerKury* section 4.4.1 and appendix A.1, equations (1), (2), (12) to (15). The printed rate μ = c/n_r is
a slip: a request costs c/n_r core·seconds, so a core serves **n_r/c** of them per second; equation (7) needs this one.

Why logarithms and sums in closed form: a_n = Π λ/μ_i leaves the range of a double after some hundred seats, and the
queue of an overloaded component may be millions long. Behind the last seat the rate is constant, so that part is a
geometric series, which costs the same for any length.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carico_agent.plane.curve import Curve


@dataclass(frozen=True, slots=True)
class Load:
    """What a component had to do in one window: n_r requests that took c core·seconds in Δt seconds.

    >>> Load(60_000, 300, 60).arrivals_per_s, Load(60_000, 300, 60).served_per_core_s, Load(60_000, 300, 60).cores
    (1000.0, 200.0, 5.0)
    """

    requests: float
    core_s: float
    window_s: float

    @property
    def arrivals_per_s(self) -> float:
        """λ = n_r/Δt."""
        return self.requests / self.window_s

    @property
    def served_per_core_s(self) -> float:
        """μ = n_r/c: requests that one core finishes in a second."""
        return self.requests / self.core_s

    @property
    def cores(self) -> float:
        """c/Δt: cores in use on average."""
        return self.core_s / self.window_s


@dataclass(frozen=True, slots=True)
class Performance:
    """What a component answers with in the long run."""

    reject_ratio: float
    """p_reject: share of the requests that find the queue full."""
    present: float
    """L: requests in the component, executing and waiting."""
    queued: float
    """L_q: those that wait."""
    wait_s: float
    """W: from arrival to answer [s]."""

    @property
    def executing(self) -> float:
        """L_e = L − L_q (13)."""
        return self.present - self.queued


class Chain:
    """One component with fixed seats f* and cores c*; the queue is an argument, so that it can be searched for.

    >>> one_server = Chain(Load(48, 48, 48 / 0.8), Curve.of([(1, 1)]), cores=1, seats=1)
    >>> round(one_server.performance(queue=9).reject_ratio, 8)
    0.02349286
    """

    def __init__(self, load: Load, curve: Curve, cores: float, seats: int) -> None:
        self.load, self.seats = load, seats
        self.rate_cores = min(cores, curve.cores(seats))
        """min(c*, f(f*)): cores in use when all seats are taken."""
        # (1) μ_n = min(c*, f(min(n, f*)))·μ; r_n = λ/μ_n = (c/Δt) / min(c*, f(n))
        used = np.minimum(cores, curve.upto(seats))
        # (12) ln a_n for n = 0 … f*: a state that is not left downwards (μ_n = 0) makes all below it transient
        stuck = np.flatnonzero(used <= 0)
        self._first = int(stuck[-1]) + 1 if len(stuck) else 0
        steps = math.log(load.cores) - np.log(used[self._first :])
        self._log_a: NDArray[np.float64] = np.concatenate([[0.0], np.cumsum(steps)])
        self.log_ratio = math.log(load.cores / self.rate_cores)
        """ln r of the queue; below 0 the component is steady."""
        self._top = float(self._log_a.max())
        self._weights = np.exp(self._log_a - self._top)
        self._head = float(self._weights[:-1].sum())
        self._head_present = float(np.dot(self._weights[:-1], self._first + np.arange(len(self._weights) - 1)))

    @property
    def steady(self) -> bool:
        """(7): min(c*, f(f*)) > c/Δt."""
        return self.rate_cores > self.load.cores

    def reject_ratio(self, queue: int) -> float:
        """p_reject = a_{f*+q}/Σa."""
        log_last = float(self._log_a[-1]) - self._top + queue * self.log_ratio
        log_tail = float(self._log_a[-1]) - self._top + log_series(self.log_ratio, queue)
        high = max(log_tail, 0.0)
        return math.exp(log_last - high) / (self._head * math.exp(-high) + math.exp(log_tail - high))

    def performance(self, queue: int) -> Performance:
        """(13, 14) L = Σ n·p_n, L_q = Σ_{n>f*} (n − f*)·p_n, W = L/(λ·(1 − p_reject))."""
        log_a = float(self._log_a[-1]) - self._top
        log_tail = log_a + log_series(self.log_ratio, queue)
        high = max(log_tail, 0.0)
        head, tail = math.exp(-high), math.exp(log_tail - high)
        total = self._head * head + tail
        queued = tail * series_mean(self.log_ratio, queue) / total
        present = (self._head_present * head + tail * self.seats) / total + queued
        # 1 − p_reject as the sum of the other states: a difference would cancel when nearly everything is rejected
        others = math.exp(log_a + log_series(self.log_ratio, queue - 1) - high) if queue else 0.0
        accepted = (self._head * head + others) / total
        return Performance(self.reject_ratio(queue), present, queued, present / (self.load.arrivals_per_s * accepted))

    def backlog(self) -> float:
        """(2, 15) L_q of an unsteady component: l = max(0, c − min(c*, f(f*))·Δt), L_q = l·n_r/c."""
        left_core_s = max(0.0, self.load.core_s - self.rate_cores * self.load.window_s)
        return left_core_s * self.load.requests / self.load.core_s


def log_series(log_ratio: float, last: int) -> float:
    """ln Σ_{j=0…last} r^j.

    >>> round(math.exp(log_series(math.log(0.5), 3)), 12), round(math.exp(log_series(0.0, 3)), 12)
    (1.875, 4.0)
    """
    if log_ratio == 0:
        return math.log(last + 1)
    return _log_expm1((last + 1) * log_ratio) - _log_expm1(log_ratio)


def _log_expm1(v: float) -> float:
    """ln |e^v − 1| without overflow."""
    return v + math.log1p(-math.exp(-v)) if v > 1 else math.log(abs(math.expm1(v)))


def series_mean(log_ratio: float, last: int) -> float:
    """The mean of j = 0 … last weighted by r^j: (last+1)·g((last+1)·ln r) − g(ln r), g(v) = 1/(1 − e^−v).

    Near r = 1 both terms are 1/ln r and cancel; they are left out on both sides (g(v) − 1/v is smooth).

    >>> round(series_mean(math.log(0.5), 1), 12), series_mean(0.0, 10), round(series_mean(1e-9, 10), 6)
    (0.333333333333, 5.0, 5.0)
    """
    return (last + 1) * _g_without_pole((last + 1) * log_ratio) - _g_without_pole(log_ratio)


def _g_without_pole(v: float) -> float:
    if abs(v) < 0.1:  # the next term is v⁷/1 209 600 < 1e-13
        return 0.5 + v / 12 - v**3 / 720 + v**5 / 30_240
    if v < -700:
        return -1 / v
    return 1 / -math.expm1(-v) - 1 / v
