"""The command line of the bench."""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable

from lab import bench
from lab.bench import api, imports, lateness, progress, runtime, soak, stages, timer, whole
from lab.bench.table import Row, lines, missing
from lab.support import TREE

RESULTS = TREE / "lab/results/bench.md"
HEAD = "# What the agent costs (`python -m lab.bench --write`)\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=bench.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short windows: for a first look")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--soak", nargs="?", type=float, const=1.0, metavar="MINUTES", help="also look for leaks")
    parser.add_argument("--only", metavar="NAME,…", help="only these sections")
    parser.add_argument("--write", action="store_true", help=f"keep the table in {RESULTS.relative_to(TREE)}")
    given = parser.parse_args()
    quick = given.quick
    sections: dict[str, tuple[str, Callable[[], list[Row]]]] = {
        "whole": ("the whole agent at 10 Hz", lambda: whole.measure(6 if quick else 30)),
        "pods": ("the same with a containerd", lambda: whole.with_containers(*((6, 10) if quick else (30, 110)))),
        "working": (
            "the same with Pods that all work a little every second",
            lambda: whole.with_containers(*((6, 10) if quick else (30, 110)), work=True),
        ),
        "kubernetes": (
            "the same on a node of a cluster",
            lambda: whole.with_kubernetes(*((6, 10) if quick else (30, 110))),
        ),
        "events": ("containerd's events", lambda: runtime.measure(20 if quick else 100)),
        "timer": ("timer", lambda: timer.measure(6 if quick else 20)),
        "stages": ("stages, CPU time in a tight loop", lambda: stages.measure(quick)),
        "api": ("local socket", lambda: api.measure(2000 if quick else 10_000)),
        "lateness": ("lateness under full load", lambda: lateness.measure(8 if quick else 40)),
        "progress": ("reports of jobs", lambda: progress.measure(quick)),
        "imports": ("imports in a fresh interpreter (CPU time)", imports.measure),
    }
    if given.soak is not None:
        sections["soak"] = ("flat memory", lambda: soak.measure(given.soak))
    chosen = given.only.split(",") if given.only else list(sections)
    if unknown := [name for name in chosen if name not in sections]:
        parser.error(f"--only: {', '.join(unknown)}: known are {', '.join(sections)}")
    return run({name: sections[name] for name in chosen}, given.json, given.write)


def run(sections: dict[str, tuple[str, Callable[[], list[Row]]]], as_json: bool, write: bool = False) -> int:
    load = os.getloadavg()[0]
    about = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_before": load,
        "cores": len(os.sched_getaffinity(0)),
    }
    if not as_json:
        print(
            f"carico bench: python {about['python']}, Linux {about['kernel']}, {about['cores']} cores, "
            f"load {load:.1f} before"
        )
    results: dict[str, list[Row]] = {}
    for name, (title, measure) in sections.items():
        try:
            results[name] = measure()
        except (OSError, RuntimeError, ValueError) as error:
            results[name] = [missing(title, f"{type(error).__name__}: {error}")]
        if not as_json:
            print("\n".join(lines(title, results[name])), flush=True)
        if write:
            keep(name, f"load {load:.1f} before", lines(title, results[name]))
    if as_json:
        print(json.dumps({"machine": about, **{name: [row.data() for row in rows] for name, rows in results.items()}}))
    return int(any(row.failed for rows in results.values() for row in rows))


def keep(section: str, machine: str, table: list[str]) -> None:
    """Put one section into the results; the others stay as they were."""
    head, *parts = RESULTS.read_text().split("\n## ") if RESULTS.exists() else [HEAD]
    kept = {part.split("\n", 1)[0]: part for part in parts}
    made = f"{platform.release()}, Python {platform.python_version()}, {os.cpu_count()} cores, {machine}"
    kept[section] = "\n".join(
        [section, "", f"{time.strftime('%Y-%m-%d')}, Linux {made}", "", "```", *table[1:], "```", ""]
    )
    RESULTS.write_text("\n## ".join([head, *kept.values()]))


if __name__ == "__main__":
    sys.exit(main())
