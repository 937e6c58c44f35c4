"""What the source's section 5.2 assumes of series, tested on series that anyone can have.

    python -m lab.traces.assumptions --data FOLDER      # writes lab/results/recommend_assumptions.md

- Figure 5.7: a histogram's percentile assumes that values do not depend on those before. Of independent values 5 % of
  the autocorrelations lie beyond ±1.96/√T.
- Section 5.2: the variance of a forecast assumes normal residuals. A χ² test at 95 % asks each fit.
- Figure 5.10: VPA's percentile of every minute of memory, without its daily peaks, is a curve of its own.

Series: `lab/traces/backtest_public.py` (public traces) and the recorded ones. Sentences are made from the rows.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from carico_agent.recommend.arima import CannotFit, fit
from carico_agent.recommend.backtest import NAMES, WINDOWLESS, backtest, ratio_to
from carico_agent.recommend.method import RESOURCES, Resource
from carico_agent.recommend.series import TAIL, Array
from lab.traces.backtest import recorded
from lab.traces.backtest_public import sets, stretches

REPORT = Path(__file__).parents[1] / "results" / "recommend_assumptions.md"
LAGS = 40
BINS, CRITICAL = 10, 14.067
"""Equally likely bins, and the 95 % quantile of χ² with 10 − 1 − 2 degrees of freedom (mean and width are fitted)."""
SOURCE_REJECTED = 1499 / 1664


def dependence(x: Array, lags: int = LAGS) -> float:
    """The share of autocorrelations at 1 … `lags` beyond ±1.96/√T: 0.05 where values are independent."""
    centred = x - x.mean()
    total = float(centred @ centred)
    found = [float(centred[lag:] @ centred[:-lag]) / total for lag in range(1, lags + 1)]
    return float(np.mean(np.abs(found) > 1.96 / np.sqrt(x.size)))


def chi_squared(residuals: Array) -> float:
    """χ² of the counts in BINS that are equally likely for a normal distribution of this mean and width.

    >>> float(round(chi_squared(np.repeat([-1.0, 1.0], 50)), 1))
    400.0
    """
    width = float(residuals.std(ddof=1))
    edges = [NormalDist().inv_cdf(n / BINS) for n in range(1, BINS)]
    counts = np.bincount(np.searchsorted(edges, (residuals - residuals.mean()) / width), minlength=BINS)
    expected = residuals.size / BINS
    return float(((counts - expected) ** 2).sum() / expected)


@dataclass(frozen=True)
class ExaminedSet:
    """One set and resource."""

    name: str
    resource: Resource
    series: int
    beyond: float
    """Median share of autocorrelations beyond the bound."""
    fitted: int
    rejected: int
    r_squared: tuple[float, float, float]
    """Quartiles."""
    windowless: dict[str, float | None]
    """Its excess relative to other methods at equal shortages; of memory only."""

    def row(self) -> str:
        low, middle, high = self.r_squared
        rejected = f"{self.rejected} of {self.fitted} ({self.rejected / max(self.fitted, 1):.0%})"
        ratios = " | ".join(
            "" if self.resource == "cpu" else "never equal" if (r := self.windowless.get(name)) is None else f"{r:.2f}"
            for name in NAMES
        )
        return (
            f"| {self.name}, {self.resource} | {self.series} | {self.beyond:.0%} | {rejected} | "
            f"{low:.2f}, {middle:.2f}, {high:.2f} | {ratios} |"
        )


def examine(name: str, resource: Resource, many: Sequence[Array]) -> ExaminedSet:
    fits = []
    for x in many:
        try:
            fits.append(fit(x[-TAIL:]))
        except CannotFit:
            continue
    rejected = sum(chi_squared(one.residuals) > CRITICAL for one in fits)
    rows = backtest(resource, many, max_origins=3, windowless=True) if resource == "memory" else []
    low, middle, high = np.quantile([one.r_squared for one in fits], [0.25, 0.5, 0.75])
    return ExaminedSet(
        name,
        resource,
        len(many),
        float(np.median([dependence(x[-TAIL:]) for x in many if np.ptp(x[-TAIL:]) > 0])),
        len(fits),
        rejected,
        (float(low), float(middle), float(high)),
        {other: ratio_to(rows, WINDOWLESS, other) for other in NAMES} if rows else {},
    )


def sentences(found: Sequence[ExaminedSet]) -> list[str]:
    most, least = (choose(found, key=lambda one: one.rejected / max(one.fitted, 1)) for choose in (max, min))
    shares = [one.rejected / max(one.fitted, 1) for one in (least, most)]
    known = [(one.name, other, r) for one in found for other, r in one.windowless.items() if r is not None]
    worst = [f"{name} against {other} {ratio:.2f}" for name, other, ratio in known if ratio <= 1]
    return [
        f"- Values depend on those before: the median series has {min(one.beyond for one in found):.0%} to "
        f"{max(one.beyond for one in found):.0%} of its autocorrelations beyond the bound; 5 % would be independent.",
        f"- Residuals are not normal in {shares[0]:.0%} to {shares[1]:.0%} of the fits "
        f"(source: {SOURCE_REJECTED:.0%}).",
        f"- VPA without windows has more excess at equal shortages in {sum(r > 1 for *_, r in known)} of {len(known)} "
        f"comparisons (source: it is the worst){'; not in: ' + ', '.join(worst) if worst else ''}.",
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.traces.assumptions")
    parser.add_argument("--data", type=Path, required=True, help="folder with the public traces")
    parser.add_argument("--series", type=int, default=100, help="of each set and resource (default 100)")
    given = parser.parse_args(argv)
    begun, found = time.monotonic(), []
    for name, kinds in {"recorded": recorded(), **sets(given.data)}.items():
        for resource in RESOURCES:
            many = kinds[resource]
            drawn = stretches(many, given.series) if isinstance(many, np.ndarray) else many
            found.append(examine(name, resource, drawn))
            print(found[-1].row(), flush=True)
    lines = [
        "# What the source assumes of series",
        "",
        f"`python -m lab.traces.assumptions --data FOLDER --series {given.series}`. The last {TAIL} samples of each "
        "series. Last columns: excess of VPA without windows relative to each method at equal shortages, memory only.",
        "",
        *sentences(found),
        "",
        f"| set | series | beyond ±1.96/√T | normal residuals rejected | R² quartiles | {' | '.join(NAMES)} |",
        "|---" * (5 + len(NAMES)) + "|",
        *(one.row() for one in found),
        "",
    ]
    REPORT.write_text("\n".join(lines))
    print(f"{REPORT}: {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
