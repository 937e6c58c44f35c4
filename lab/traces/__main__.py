"""Capacity that holds for hours, on public traces.

python -m lab.traces --data FOLDER [--every 47] [--size 20] [--most 100] [--only NAME] [--write]     what is reported
python -m lab.traces --data FOLDER --fit                                                the weights, printed
python -m lab.traces --synthetic                                                        without any data

The truth is the most that those running now use together in the next hours; what the field predicts, and what carico's
real Outlook does. Weights were fitted on every other VM of July 2013 and every other Google job: the reported sets hold
none of them, but for August, whose VMs are the same ones a month later. Numbers are pinball loss at .95 × 1000, as a
share of the node (Σ limits), and in brackets how many cases were short by more than 5 % of the node.
"""

import argparse
import json
import os
import subprocess
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from lab.traces.data import SETS, Missing, TraceSet, synthetic
from lab.traces.report import best_of_field, cold_table, draw, loss, main_table, of, quantile_table, short
from lab.traces.run import HORIZONS, TraceCase, cases

TREE = Path(__file__).parent.parent.parent
RESULTS = TREE / "lab" / "results"

REPORTED = (
    ("bitbrains-07", True, None),
    ("bitbrains-08", False, None),
    ("bitbrains-08", False, 23),
    ("bitbrains-09", False, None),
    ("bitbrains-08-memory", False, None),
    ("google-task", True, 23),
    ("google-job", True, 23),
)
"""Set, only the half that nothing was fitted on, and how nodes are made: neighbours (None) or drawn with a seed."""


def gathered(traces: TraceSet, seed: int | None, args: argparse.Namespace) -> list[TraceCase]:
    nodes = list(traces.nodes(args.size, seed))
    nodes = nodes[:: -(-len(nodes) // args.most)]
    with ProcessPoolExecutor(args.jobs) as pool:
        tasks = [pool.submit(cases, traces, number, rows, args.every) for number, rows in enumerate(nodes)]
        return [case for task in tasks for case in task.result()]


def reported(folder: Path, args: argparse.Namespace) -> dict[str, list[TraceCase]]:
    found = {}
    for name, other_half, seed in REPORTED:
        if args.only not in name:
            continue
        try:
            traces = SETS[name](folder)
        except Missing as why:
            print(f"{name}: skipped, {why}")
            continue
        traces = traces.half(1) if other_half else traces
        label = traces.name + (", neighbours" if seed is None else ", mixed")
        found[label] = gathered(traces, seed, args)
    return found


def code() -> str:
    """The commit of the code that ran, and whether the core or this lab was changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=TREE, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "carico_agent/core", "lab/traces")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (", changed since" if changed else "")


def summary(sets: dict[str, list[TraceCase]]) -> dict[str, dict[str, float]]:
    found = {}
    for name, all_cases in sets.items():
        for horizon in HORIZONS:
            here = of(all_cases, horizon)
            found[f"{name}, {horizon}"] = {
                "cases": len(here),
                "pinball_95": loss(here, "carico"),
                "best_of_field": best_of_field(here),
                "short": short(here, "carico"),
            }
    return found


def page(sets: dict[str, list[TraceCase]], args: argparse.Namespace) -> str:
    return "\n".join(
        [
            "# Capacity that holds for hours, on public traces",
            "",
            f"`python -m lab.traces --data FOLDER --every {args.every} --size {args.size} --most {args.most} --write`,",
            f"code {code()}.",
            "",
            *(__doc__ or "").split("\n\n")[2:],
            "## After the first week",
            "",
            main_table(sets),
            "",
            "## Quantiles",
            "",
            quantile_table(sets),
            "",
            "## Cold start: RC-like → carico, by day since the first observation",
            "",
            cold_table(sets),
            "",
            "![violations against savings](traces.png)",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the public sets")
    parser.add_argument("--synthetic", action="store_true", help="a small set made by code instead")
    parser.add_argument("--fit", action="store_true", help="print the weights of the forecast")
    parser.add_argument(
        "--every", type=int, default=47, metavar="SLOTS", help="slots of 5 minutes between two questions"
    )
    parser.add_argument("--size", type=int, default=20, help="VMs or tasks per node")
    parser.add_argument("--most", type=int, default=100, metavar="NODES", help="nodes per set at most, every so many")
    parser.add_argument("--only", default="", help="sets whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="renew lab/results/traces.*")
    args = parser.parse_args()
    if args.data is None and not args.synthetic:
        parser.error("name the folder with --data, or ask for --synthetic")
    if args.fit:
        from lab.traces.fit import main as fit

        fit(args.data)
        return
    sets = {"synthetic": gathered(synthetic(), None, args)} if args.synthetic else reported(args.data, args)
    print(main_table(sets), quantile_table(sets), cold_table(sets), sep="\n\n")
    if args.write:
        (RESULTS / "traces.md").write_text(page(sets, args))
        (RESULTS / "traces.json").write_text(json.dumps({"code": code(), "sets": summary(sets)}, indent=1) + "\n")
        draw(sets, RESULTS / "traces.png")


if __name__ == "__main__":
    main()
