"""The backtest of all methods on public traces, with confidence intervals.

    python -m lab.traces.backtest_public --data FOLDER      # writes lab/results/recommend_traces.md

Sets: Bitbrains Rnd of two months (500 VMs each) and 300 jobs of Google's trace of 2011 (`lab/traces/data.py` has the
sources; the data is not in the tree). Both have a sample every five minutes, which stands for a minute here: 120
samples are ten hours, the horizon of five is 25 minutes. Intervals: series are drawn again with replacement, because
the cases of one series depend on each other. Every sentence of the report is made from the rows below it.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from carico_agent.recommend.backtest import BacktestRow, backtest, ratio_to
from carico_agent.recommend.method import RESOURCES, Resource
from carico_agent.recommend.series import Array

REPORT = Path(__file__).parents[1] / "results" / "recommend_traces.md"
WINDOW = 360
"""Samples of each series that are used: a random stretch without gaps."""
ORIGINS, DRAWS, SEED = 6, 400, 31
GOOGLE_CORES, GOOGLE_BYTES = 32.0, 64.0 * 2**30
"""What one normalised unit of Google's trace is taken for; the trace does not say."""
PAIRS = (("walk", "vpa"), ("arima", "vpa"), ("walk", "peak"), ("arima", "peak"), ("arima", "walk"))


@dataclass(frozen=True)
class Interval:
    """A ratio of excess at equal shortages, and where 95 % of the drawn samples of series lie; None: never equal."""

    ratio: float | None
    low: float = float("nan")
    high: float = float("nan")

    def text(self) -> str:
        return "never equal" if self.ratio is None else f"{self.ratio:.2f} ({self.low:.2f}–{self.high:.2f})"

    def says(self) -> str:
        """What can be said about it: only what the whole interval says."""
        if self.ratio is None:
            return "cannot be compared with"
        return (
            "has less excess than" if self.high < 1 else "has more excess than" if self.low > 1 else "is not told from"
        )


def sets(folder: Path) -> dict[str, dict[Resource, Array]]:
    """Every set that is in the folder: series × samples, in cores and bytes."""
    found: dict[str, dict[Resource, Array]] = {}
    for month in ("07", "08"):
        path = folder / f"bitbrains-rnd-2013-{month}.npz"
        if path.exists():
            with np.load(path) as file:
                cores, size = file["cores"].astype(float)[:, None], file["memory_kb"][:, None] * 1024
                found[f"Bitbrains 2013-{month}"] = {"cpu": file["cpu"] * cores, "memory": file["memory"] * size}
    path = folder / "google-2011-jobs.npz"
    if path.exists():
        with np.load(path) as file:
            tasks = np.where(file["tasks"] > 0, file["tasks"], 1).astype(float)
            cpu, memory = file["cpu"].astype(float) / tasks, file["memory"].astype(float) / tasks
            found["Google 2011"] = {"cpu": cpu * GOOGLE_CORES, "memory": memory * GOOGLE_BYTES}
    return found


def stretches(values: Array, count: int, seed: int = SEED) -> list[Array]:
    """A stretch of WINDOW samples of each of `count` series: without gaps, and not constant."""
    rng, made = np.random.default_rng(seed), []
    for row in rng.permutation(len(values)):
        start = int(rng.integers(0, values.shape[1] - WINDOW))
        x = values[row, start : start + WINDOW].astype(float)
        if np.isfinite(x).all() and np.ptp(x) > 1e-6 * max(float(np.abs(x).max()), 1e-12):
            made.append(x)
        if len(made) == count:
            break
    return made


def per_series(resource: Resource, many: Sequence[Array]) -> list[list[BacktestRow]]:
    """The rows of each series alone; series in which no window ever changes give none."""
    rows = [backtest(resource, [x], max_origins=ORIGINS) for x in many]
    return [one for one in rows if one and one[0].cases]


def added(tables: Sequence[list[BacktestRow]], times: Any = None) -> list[BacktestRow]:
    """Rows of several series as one; `times`: how often each counts."""
    times = np.ones(len(tables), dtype=int) if times is None else times
    made = []
    for place, row in enumerate(tables[0]):
        column = [one[place] for one in tables]
        cases, short, fallbacks = (
            int(np.dot(times, [getattr(one, name) for one in column])) for name in ("cases", "short", "fallbacks")
        )
        excess, missing = (
            float(np.dot(times, [getattr(one, name) for one in column])) for name in ("excess", "shortfall")
        )
        made.append(BacktestRow(row.method, row.n, cases, short, excess, missing, fallbacks))
    return made


def intervals(tables: Sequence[list[BacktestRow]], draws: int = DRAWS) -> dict[tuple[str, str], Interval]:
    """Every pair, with 95 % intervals of a bootstrap over series."""
    rng, whole = np.random.default_rng(SEED), added(tables)
    drawn: dict[tuple[str, str], list[float]] = {pair: [] for pair in PAIRS}
    for _ in range(draws):
        rows = added(tables, np.bincount(rng.integers(0, len(tables), len(tables)), minlength=len(tables)))
        for pair in PAIRS:
            if (ratio := ratio_to(rows, *pair)) is not None:
                drawn[pair].append(ratio)
    found = {}
    for pair in PAIRS:
        ratio, values = ratio_to(whole, *pair), drawn[pair]
        found[pair] = Interval(None) if ratio is None or not values else Interval(ratio, *_middle(values))
    return found


def _middle(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def autocorrelation(many: Sequence[Array]) -> tuple[float, float, float]:
    """Quartiles of the correlation of a step with the step before: what a model of steps could use."""
    found = []
    for x in many:
        z = np.diff(x)
        if z[1:].std() > 0 and z[:-1].std() > 0:  # one jump at an end leaves one of them constant
            found.append(float(np.corrcoef(z[1:], z[:-1])[0, 1]))
    low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
    return float(low), float(middle), float(high)


def section(name: str, resource: Resource, many: Sequence[Array]) -> tuple[list[str], list[str]]:
    """Sentences, and the rows that they speak of."""
    tables = per_series(resource, many)
    found, rows = intervals(tables), added(tables)
    sentences = [
        f"- {name}, {resource}: {one} {found[one, other].says()} {other}: {found[one, other].text()}."
        for one, other in PAIRS
    ]
    unit, scale = ("cores", 1.0) if resource == "cpu" else ("GiB", 2.0**-30)
    low, middle, high = autocorrelation(many)
    lines = [
        f"## {name}, {resource}",
        "",
        f"{len(tables)} series, {rows[0].cases} cases. Correlation of a step with the one before: quartiles {low:.2f}, "
        f"{middle:.2f}, {high:.2f}.",
        "",
        f"| method | n | short of {rows[0].cases} | excess [{unit}] | shortfall [{unit}] |",
        "|---|---|---|---|---|",
        *(f"| {r.method} | {r.n:g} | {r.short} | {r.excess * scale:.2f} | {r.shortfall * scale:.3f} |" for r in rows),
        "",
    ]
    return sentences, lines


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.traces.backtest_public")
    parser.add_argument("--data", type=Path, required=True, help="folder with the traces")
    parser.add_argument("--series", type=int, default=60, help="of each set and resource (default 60)")
    given = parser.parse_args(argv)
    begun, data = time.monotonic(), sets(given.data)
    if not data:
        print(f"lab.traces.backtest_public: {given.data} has none of the sets", file=sys.stderr)
        return 1
    sentences: list[str] = []
    tables: list[str] = []
    for name, kinds in data.items():
        for resource in RESOURCES:
            said, lines = section(name, resource, stretches(kinds[resource], given.series))
            sentences += said
            tables += lines
            print(*said, sep="\n", flush=True)
    head = [
        "# Recommendations: the backtest on public traces",
        "",
        f"`python -m lab.traces.backtest_public --data FOLDER --series {given.series}`. A sample every five minutes "
        f"stands for a minute. {WINDOW} samples of each series, up to {ORIGINS} origins: 120 samples are shown, the "
        "next five decide. Numbers are excess at equal shortages with 95 % intervals (series drawn again, "
        f"{DRAWS} times); below 1 the first method is better. `vpa` has no window: it remembers all that came before.",
        "",
        "## What it says",
        "",
        *sentences,
        "",
    ]
    REPORT.write_text("\n".join([*head, *tables]))
    print(f"{REPORT}: {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
