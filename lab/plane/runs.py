"""Which runs of lab/plane there are to make, in which order, and the rows of those that were made."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.support.code_hash import bytes_hash, files_of

SEED = 19
CODE = ("carico_agent/plane", "lab/plane", "plugins/control_plane")
Row = dict[str, Any]
Calibration = tuple[float, list[tuple[float, float]], dict[int, float]]
"""Saturation [requests per second], the curve f(x), and requests per second by workers of a closed loop."""


@dataclass(frozen=True, slots=True)
class PlaneSetup:
    """What all rows that are compared have in common."""

    nodes: int = 300
    pods_per_node: int = 10
    kwok: bool = False
    warm_s: float = 15.0
    measured_s: float = 30.0
    code: str = ""


@dataclass(frozen=True, slots=True)
class PlaneRun:
    """One measurement."""

    arm: str
    load: float
    repeat: int


def plan(arms: Sequence[str], loads: Sequence[float], repeats: int) -> list[PlaneRun]:
    """Every repeat has all arms at all loads, in an order of its own: what changes on the machine meanwhile falls on no
    arm in particular. A repeat keeps its order when there are more repeats.

    >>> [(run.arm, run.load) for run in plan(["a", "b"], [1.2], 2)]
    [('a', 1.2), ('b', 1.2), ('b', 1.2), ('a', 1.2)]
    """
    runs = []
    for repeat in range(repeats):
        block = [PlaneRun(arm, load, repeat) for load in loads for arm in arms]
        random.Random(f"{SEED} {repeat}").shuffle(block)
        runs += block
    return runs


class Rows:
    """Rows in a file, each with the setup that it was measured with. Rows of another setup are replaced, never mixed:
    the first row of a setup removes those of all others."""

    def __init__(self, path: Path, setup: PlaneSetup) -> None:
        self._path, self._setup = path, asdict(setup)

    def all(self) -> list[Row]:
        found: list[Row] = json.loads(self._path.read_text()) if self._path.exists() else []
        return found

    def of_setup(self) -> list[Row]:
        return [row for row in self.all() if row.get("setup") == self._setup]

    def missing(self, runs: Iterable[PlaneRun]) -> list[PlaneRun]:
        made = {PlaneRun(row["arm"], row["load"], row["repeat"]) for row in self.of_setup()}
        return [run for run in runs if run not in made]

    def calibration(self) -> Calibration | None:
        """Of the first row: all rows of a setup are shares of one saturation. None: there is no row."""
        rows = self.of_setup()
        if not rows:
            return None
        first = rows[0]
        closed = {int(workers): rate for workers, rate in first["closed"].items()}
        return first["saturation"], [(x, f) for x, f in first["curve"]], closed

    def keep(self, run: PlaneRun, row: Row) -> None:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        made = {**row, **asdict(run), "setup": self._setup, "when": when}
        self._path.write_text(json.dumps([*self.of_setup(), made], indent=1) + "\n")


def code_hash() -> str:
    """Of everything that a row depends on, beside Kubernetes; the report only reads rows."""
    return bytes_hash(files_of(CODE, skip=("report.py",)))
