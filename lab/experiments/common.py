"""What experiments share: seeds, sections, claims, tables, figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lab.sim.engine import Result, Setup, run
from lab.sim.schedulers.base import SimulatedScheduler
from lab.sim.workload import PI, SKLEARN, PodBatch, SimulatedWorkload

TRAINING_SEEDS = range(10, 13)
"""Everything that was chosen was chosen on these (and the core's defaults on seeds below 100)."""
REPORTED_SEEDS = range(1000, 1005)
QUICK_SEEDS = range(1000, 1002)

FIGURES = Path(__file__).parent.parent / "figures"
COLOURS = {
    "carico": "#0b6e4f",
    "paper CARICO": "#d1495b",
    "kube": "#30638e",
    "oracle": "#777777",
    "Trimaran TLP": "#edae49",
    "PRONTO": "#8d5fd3",
}


@dataclass(frozen=True)
class ReportClaim:
    """A sentence that the run either bears out or not. `headline` ones decide the exit status."""

    text: str
    holds: bool
    headline: bool = True


@dataclass
class Section:
    title: str
    text: list[str] = field(default_factory=list)
    claims: list[ReportClaim] = field(default_factory=list)
    quick: bool = False

    def say(self, *lines: str) -> None:
        self.text += [*lines, ""]

    def table(self, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        self.text += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        self.text += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
        self.text.append("")

    def claim(self, text: str, holds: bool, headline: bool = True) -> None:
        self.claims.append(ReportClaim(text, bool(holds), headline))

    def figure(self, name: str, caption: str) -> None:
        if not self.quick:
            self.say(f"![{caption}](figures/{name})", "", f"*{caption}*")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "–" if value != value else f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def seeds(quick: bool) -> range:
    return QUICK_SEEDS if quick else REPORTED_SEEDS


def warm(*workloads: SimulatedWorkload, **changes: object) -> Setup:
    """A cluster whose agents have seen these Pods before the measured job comes."""
    return Setup(rehearsal=workloads, **changes)  # type: ignore[arg-type]


def pi(mcpu: int = 100, pods: int = 1000) -> list[PodBatch]:
    return [PodBatch(PI.asking(mcpu), pods)]


def sklearn(mib: int = 750, pods: int = 100) -> list[PodBatch]:
    return [PodBatch(SKLEARN.asking(200, mib), pods)]


def runs(
    make: type[SimulatedScheduler] | object, jobs: Sequence[PodBatch], which: Iterable[int], setup: Setup | None = None
) -> list[Result]:
    """One run per seed; `make` is called for a new scheduler each time."""
    return [run(make(), jobs, seed, setup) for seed in which]  # type: ignore[operator]


def mean_jct(results: Sequence[Result]) -> float:
    return float(np.mean([r.jct_s for r in results]))


def mean_pct(results: Sequence[Result], workload: str | None = None) -> float:
    return float(np.mean([r.pct_s(workload).mean() for r in results]))


def spread(results: Sequence[Result], workload: str | None = None) -> list[float]:
    """Mean, Std., Min., 25 %, Median, 75 %, Max. of all Pods of all runs, as the paper's tables have them."""
    p = np.concatenate([r.pct_s(workload) for r in results])
    return [float(v) for v in (p.mean(), p.std(), p.min(), *np.percentile(p, [25, 50, 75]), p.max())]


SPREAD_HEAD = ("Mean", "Std.", "Min.", "25%", "Median", "75%", "Max.")


def plot():  # type: ignore[no-untyped-def]
    """matplotlib, only when a figure is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "figure.dpi": 110,
            "savefig.bbox": "tight",
        }
    )
    FIGURES.mkdir(exist_ok=True)
    return plt
