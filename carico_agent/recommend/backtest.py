"""Which method would have been right? Rolling origin: at many instants of a recorded series only the past is shown.

Per method and safety step n: how many of the cases fell short within the horizon, how much was recommended beyond the
realised maximum (excess), and how much was missing (shortfall). A method is better where it has less excess at equally
many shortages; single numbers say nothing, because every method can buy safety with excess.

`vpa` is the real thing (decaying histogram of all that came before), `peak` the highest of the last two hours, which is
what the source calls VPA (5.15), `walk` and `arima` as they are. Source: "Analyse von Verfahren zur Optimierung des
Container-Schedulings in Kubernetes", section 5.2, figures 5.10 and 5.12.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from carico_agent.recommend.arima import CannotFit, Variance, fit
from carico_agent.recommend.buckets import CPU_BUCKETS, MEMORY_BUCKETS
from carico_agent.recommend.forecast import safe
from carico_agent.recommend.histogram import DecayingHistogram
from carico_agent.recommend.method import Resource
from carico_agent.recommend.methods.walk import walk
from carico_agent.recommend.series import STEP_S, TAIL, Array
from carico_agent.recommend.vpa import CPU_WEIGHT, MemoryPeaks

HORIZON = 5
FACTOR_STEPS: dict[Resource, tuple[float, ...]] = {
    "memory": (-8.0, -4.0, -2.0, 0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 8.0),
    "cpu": (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 14.0),
}
"""n of `vpa` and `peak`. The source tries 1 to 4 for memory and 0 to 7 for CPU; with these alone some methods are never
equally short, and nothing could be compared."""
FORECAST_STEPS: dict[Resource, tuple[float, ...]] = {
    "memory": (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 6.0, 8.0, 12.0),
    "cpu": (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 10.0, 14.0, 20.0, 30.0),
}
"""n of `walk` and `arima`."""
SENSIBLE = (0.0, 7.0)
"""Steps of a reference that are compared: what the source tried. Beyond, a method is short or wasteful on purpose."""
PEAK_FACTOR = 1.15
NAMES = ("vpa", "peak", "walk", "arima")
WINDOWLESS = "vpa without windows"


@dataclass(frozen=True, slots=True)
class BacktestRow:
    """One method with one safety step over all cases; excess and shortfall are sums [cores or bytes]."""

    method: str
    n: float
    cases: int
    short: int
    excess: float
    shortfall: float
    fallbacks: int
    """Cases in which `arima` could not be fitted and `peak` answered."""


def steps(resource: Resource, method: str) -> tuple[float, ...]:
    return (FORECAST_STEPS if method in ("walk", "arima") else FACTOR_STEPS)[resource]


def factor(resource: Resource, n: float) -> float:
    """What multiplies a peak or percentile: (5.15) for memory, (5.17) for CPU."""
    return 0.04 * n + 0.99 if resource == "memory" else 1.0 + 0.15 * n


def backtest(
    resource: Resource,
    series: Sequence[Array],
    train: int = TAIL,
    horizon: int = HORIZON,
    stride: int = HORIZON,
    max_origins: int = 24,
    variance: Variance = "exact",
    progress: Callable[[int, int], None] = lambda done, total: None,
    windowless: bool = False,
) -> list[BacktestRow]:
    """All methods on all series (one value a minute, oldest first); windows that never change are left out.
    `windowless`: also VPA's memory without its daily peaks, a curve of the source's figure 5.10."""
    made: list[tuple[dict[str, Array], float, bool]] = []
    for done, x in enumerate(series):
        progress(done, len(series))
        made += _cases(resource, x, train, horizon, stride, max_origins, variance)
    progress(len(series), len(series))
    names = (*NAMES, WINDOWLESS) if windowless else NAMES
    return [_row(resource, name, place, made) for name in names for place in range(len(steps(resource, name)))]


def _row(resource: Resource, name: str, place: int, made: list[tuple[dict[str, Array], float, bool]]) -> BacktestRow:
    over = np.array([answers[name][place] - realised for answers, realised, _ in made])
    fallbacks = sum(failed for _, _, failed in made) if name == "arima" else 0
    short, n = over < 0, steps(resource, name)[place]
    return BacktestRow(
        name,
        n,
        over.size,
        int(short.sum()),
        float(over[~short].sum()),
        float(np.abs(over[short]).sum()),
        int(fallbacks),
    )


def _cases(
    resource: Resource, x: Array, train: int, horizon: int, stride: int, most: int, variance: Variance
) -> Iterator[tuple[dict[str, Array], float, bool]]:
    """Per origin: every method's answers for all n, what came true, and whether `arima` had to fall back."""
    origins = range(train, x.size - horizon + 1, stride)
    wanted = (
        {origins[round(i)] for i in np.linspace(0, len(origins) - 1, min(most, len(origins)))} if origins else set()
    )
    past, every = _Vpa(resource), _Vpa(resource, peaks=False)
    for origin in sorted(wanted):
        past.until(x, origin)
        every.until(x, origin)
        window, realised = x[origin - train : origin], float(x[origin : origin + horizon].max())
        if np.ptp(window) <= 1e-9 * max(float(np.abs(window).max()), 1e-9):
            continue
        factors = np.array([factor(resource, n) for n in steps(resource, "peak")])
        answers = {"vpa": past.percentile() * factors, "peak": float(window.max()) * factors}
        answers[WINDOWLESS] = every.percentile() * factors
        answers["walk"] = _safe(resource, *walk(window, horizon))
        answers["arima"], failed = _arima(resource, window, horizon, variance)
        yield answers, realised, failed


def _safe(resource: Resource, forecast: Array, deviation: Array) -> Array:
    return np.array([safe(resource, forecast, deviation, n) for n in steps(resource, "walk")])


def _arima(resource: Resource, window: Array, horizon: int, variance: Variance) -> tuple[Array, bool]:
    """All n, or what `peak` with its usual margin says instead."""
    instead = np.full(len(steps(resource, "arima")), float(window.max()) * PEAK_FACTOR)
    try:
        found = fit(window)
        answer = _safe(resource, found.forecast(horizon), found.deviation(horizon, variance))
    except CannotFit:
        return instead, True
    return (answer, False) if np.isfinite(answer).all() else (instead, True)


class _Vpa:
    """The histogram as VPA would have had it at an origin; minutes are fed once. `peaks` False: each minute counts, for
    memory too."""

    def __init__(self, resource: Resource, peaks: bool = True) -> None:
        self._memory = resource == "memory" and peaks
        self._histogram = DecayingHistogram(MEMORY_BUCKETS if resource == "memory" else CPU_BUCKETS)
        self._peaks = MemoryPeaks()
        self._fed = 0

    def until(self, x: Array, origin: int) -> None:
        for minute in range(self._fed, origin):
            if self._memory:
                self._peaks.usage(self._histogram, minute * STEP_S, float(x[minute]))
            else:
                self._histogram.add(max(float(x[minute]), 0.0), CPU_WEIGHT, minute * STEP_S)
        self._fed = origin

    def percentile(self) -> float:
        return self._histogram.percentile(0.9)


def excess_at(rows: Sequence[BacktestRow], method: str, short: float) -> float | None:
    """The least excess with which a method has at most `short` shortages, between its steps; None = never so few."""
    least: dict[int, float] = {}
    for row in rows:
        if row.method == method:
            least[row.short] = min(row.excess, least.get(row.short, np.inf))
    counts = sorted(least)
    if not counts or short < counts[0]:
        return None
    # Who may be short more often never needs more.
    excess = np.minimum.accumulate([least[count] for count in counts])
    return float(np.interp(short, counts, excess))


def ratio_to(rows: Sequence[BacktestRow], method: str, reference: str = "vpa") -> float | None:
    """Excess of `method` over that of `reference` at equal shortages: the median over SENSIBLE steps."""
    low, high = SENSIBLE
    levels = [row.short for row in rows if row.method == reference and row.cases and low <= row.n <= high]
    pairs = [(excess_at(rows, method, level), excess_at(rows, reference, level)) for level in levels]
    known = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
    return float(np.median(known)) if known else None
