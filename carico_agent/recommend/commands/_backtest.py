"""`carico recommend --backtest`: every method on the recorded past, as a table and a picture."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from carico_agent.command import complain
from carico_agent.recommend.arima import MIN_SAMPLES, Variance
from carico_agent.recommend.backtest import HORIZON, NAMES, BacktestRow, backtest, ratio_to
from carico_agent.recommend.method import RESOURCES, Resource
from carico_agent.recommend.series import TAIL
from carico_agent.recommend.sources.histories import Found

MIB = 2**20
COLOURS = {"vpa": "#30638e", "peak": "#edae49", "walk": "#0b6e4f", "arima": "#d1495b"}
Results = dict[Resource, list[BacktestRow]]


def show(found: Found, given: argparse.Namespace) -> int:
    """Exit code 1 when nothing is long enough, or the picture cannot be drawn."""
    results = run(found, given.variance)
    if not any(row.cases for rows in results.values() for row in rows):
        complain(f"--backtest: no series of {MIN_SAMPLES + HORIZON} minutes or more that ever changes")
        return 1
    if given.output == "json":
        print(json.dumps({name: [asdict(row) for row in rows] for name, rows in results.items()}, indent=2))
    else:
        print("\n\n".join(table(resource, rows) for resource, rows in results.items()))
    if given.picture:
        try:
            draw(results, given.picture)
        except ImportError:
            complain("--picture: matplotlib is missing; install carico-agent[lab]")
            return 1
        except (OSError, ValueError) as error:
            complain(f"--picture {given.picture}: {error}")
            return 1
    return 0


def run(found: Found, variance: Variance) -> Results:
    """Two hours of training where there is more than that, one hour otherwise."""
    results: Results = {}
    for resource in RESOURCES:
        tails = [(one.cpu_tail if resource == "cpu" else one.memory_tail).values for one in found.histories.values()]
        longest = max((tail.size for tail in tails), default=0)
        train = TAIL if longest >= TAIL + HORIZON else MIN_SAMPLES
        results[resource] = backtest(resource, tails, train, variance=variance, progress=_progress)
    return results


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(
            f"\rcarico: backtest {done}/{total}\033[K", end="\r" if done == total else "", file=sys.stderr, flush=True
        )


def table(resource: Resource, rows: Sequence[BacktestRow]) -> str:
    unit, scale = ("cores", 1.0) if resource == "cpu" else ("MiB", 1.0 / MIB)
    lines = [
        f"{resource.upper():8} {'n':>4} {'CASES':>6} {'SHORT':>6} {'EXCESS ' + unit:>14} {'SHORTFALL ' + unit:>16}"
    ]
    for row in rows:
        note = f"  ({row.fallbacks} by peak)" if row.fallbacks else ""
        lines.append(
            f"{row.method:8} {row.n:4g} {row.cases:6} {row.short:6} {row.excess * scale:14.3f} "
            f"{row.shortfall * scale:16.3f}{note}"
        )
    for name in NAMES[1:]:
        found = ratio_to(rows, name)
        text = "never as many shortages as vpa" if found is None else f"{found:.2f} × vpa's excess at equal shortages"
        lines.append(f"{name}: {text}")
    return "\n".join(lines)


def draw(results: Results, path: str) -> None:
    """Shortages against excess, a line per method and a number per safety step; ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(6 * len(results), 4.5), squeeze=False)
    for ax, (resource, rows) in zip(axes[0], results.items(), strict=True):
        scale = 1.0 if resource == "cpu" else 1.0 / MIB
        for name in NAMES:
            line = [row for row in rows if row.method == name]
            ax.plot(
                [r.short for r in line], [r.excess * scale for r in line], "o-", color=COLOURS[name], label=name, ms=3
            )
            for row in line:
                ax.annotate(f"{row.n:g}", (row.short, row.excess * scale), fontsize=7, color=COLOURS[name])
        ax.set_xscale("symlog", linthresh=1.0)
        ax.set_yscale("log")
        ax.set_xlabel(f"cases short (of {rows[0].cases if rows else 0})")
        ax.set_ylabel(f"excess [{'cores' if resource == 'cpu' else 'MiB'}]")
        ax.set_title(f"{resource}: lower left is better")
        ax.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
