"""What Pods are believed to cost on a crowded node, beside the truth: what they use alone on it.

    python -m lab.crowded [--loads busy1 think8q …] [--part 1/4] [--out lab/results] [--table]

Real containers under a private containerd, each also seen as a plain process: busy (always runnable), think (30 ms of
work, 470 ms of sleep) and open (10 ms of work every 50 ms by the clock), 1, 4 and 8 threads, with and without a quota,
beside 0, 2, 4 and 8 busy neighbours: once with the Pod there before they came, once started beside them. Wanted: cost
within 15 % or .03 cores of the truth for busy and think; for open within 30 % where it was seen uncrowded, and an
interval that holds the truth where it was not. A quiet machine is needed; 80 s per workload. `--part` measures some of
the workloads and adds them to what is in the results of the same code; `--table` measures nothing.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.crowded.cells import LOADS, CrowdedCell, CrowdLoad
from lab.crowded.run import Crowd, NoCompiler
from lab.support.code_hash import bytes_hash, files_of
from lab.support.containerd import PrivateContainerd, missing

HASHED = (
    "carico_agent/core",
    "carico_agent/node/pods",
    "carico_agent/node/measurements.py",
    "carico_agent/node/pipeline.py",
)


QUIET_LOAD = 0.5


def code_hash() -> str:
    """Of all that makes a cost: results of other code are not mixed with these."""
    return bytes_hash(files_of(HASHED))


def other_load() -> float:
    """Runnable threads on this machine before anything of ours runs, by the last minute's mean."""
    return os.getloadavg()[0]


def measure(loads: Sequence[CrowdLoad], first: bool) -> Iterator[CrowdedCell]:
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as containerd:
        crowd = Crowd(containerd, first)
        for number, load in enumerate(loads, start=1):
            print(f"{number} of {len(loads)}: {load.name}", file=sys.stderr, flush=True)
            yield from crowd.cells(load)


def table(cells: Sequence[CrowdedCell]) -> list[str]:
    lines = [
        "| workload | quota | seen as | neighbours | Pod began | truth | got | used + waited | **cost** | ± | bound |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        began = "beside them" if cell.started_crowded else "before" if cell.neighbours else "alone"
        began += "" if cell.started_crowded or cell.seen_quiet else ", not quiet"
        numbers = (
            f"{cell.truth:.3f} | {cell.used:.3f} | {cell.by_waiting:.3f} | **{cell.cost:.3f}** | {cell.cost_sd:.3f}"
        )
        lines.append(
            f"| {cell.workload} ×{cell.threads} | {'yes' if cell.quota else ''} | {cell.seen_as} | {cell.neighbours} | "
            f"{began} | {numbers} | {'held' if cell.within else '**missed**'} |"
        )
    return lines


def page(cells: Sequence[CrowdedCell], code: str, load: float = 0.0) -> str:
    held = sum(cell.within for cell in cells)
    text = [
        "# What Pods cost on a crowded node",
        "",
        f"`python -m lab.crowded`, {os.cpu_count()} CPUs, code {code}. In cores. {held} of {len(cells)} cells hold.",
        "`used + waited` is how demand was made before: right for busy loops alone.",
        *_loaded(load),
        "",
        *table(cells),
        "",
    ]
    return "\n".join(text)


def _loaded(load: float) -> list[str]:
    if load < QUIET_LOAD:
        return []
    return [
        "",
        f"**The machine was loaded**: up to {load:.0f} other threads were runnable when workloads began, and cells are",
        "more crowded than they say. Where a Pod did not get what it wants before its neighbours came (*not quiet*),",
        "open is judged by its interval.",
    ]


def _key(state: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(state[name] for name in ("quota", "workload", "threads", "seen_as", "started_crowded", "neighbours"))


def kept(file: Path, code: str) -> tuple[list[dict[str, Any]], float]:
    """Cells of this code, and the most other load that was there meanwhile."""
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return [], 0.0
    return (list(found["cells"]), float(found["load"])) if found["code"] == code else ([], 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", nargs="+", choices=[load.name for load in LOADS], help="only these")
    parser.add_argument("--part", default="1/1", help="2/4: the second quarter of them")
    parser.add_argument("--out", type=Path, default=Path("lab/results"))
    parser.add_argument("--first", action="store_true", help="before all other users of this machine, who agree")
    parser.add_argument("--table", action="store_true", help="print what is there")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    loads = [load for load in LOADS if not given.loads or load.name in given.loads][part - 1 :: parts]
    file, code = given.out / "crowded.json", code_hash()
    before, load = kept(file, code)
    states = {_key(state): state for state in before}
    if not given.table:
        if reason := missing():
            print(f"lab.crowded: cannot run here: {reason}")
            return 1
        load = max(load, other_load())
        try:
            for cell in measure(loads, given.first):
                states[_key(cell.state())] = cell.state()
                given.out.mkdir(parents=True, exist_ok=True)
                file.write_text(
                    json.dumps({"code": code, "load": load, "cells": list(states.values())}, indent=0) + "\n"
                )
        except NoCompiler as error:
            print(f"lab.crowded: cannot run here: {error}")
            return 1
    cells = [CrowdedCell(**states[key]) for key in sorted(states)]
    text = page(cells, code, load)
    (given.out / "crowded.md").write_text(text)
    print(text)
    return 0 if cells and all(cell.within for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main())
