"""`carico plane solve --components FILE`: cores for all components of a machine, by the workflow of the document."""

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

from carico_agent.command import complain
from carico_agent.plane.curve import LINEAR, BadTable, parse_table
from carico_agent.plane.queueing import Load
from carico_agent.plane.sizing import NoRecommendation
from carico_agent.plane.whole import NAMES, SCHEDULER, ComponentWindow, Given, allocate, pods_per_s

FIELDS = {  # key of the file: field of a ComponentWindow
    "weight": "weight",
    "waiting": "waiting",
    "min_cores": "min_cores",
    "now_cores": "now_cores",
    "throttled": "throttled",
    "from_scheduler": "from_scheduler",
    "from_controller": "from_controller",
}
NEEDED = ("requests", "core_seconds")


def run(given: argparse.Namespace) -> int:
    try:
        parts = read_parts(Path(given.components), given.window)
        found = allocate(parts, given.cores, given.availability)
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}")
        return 2
    except (BadTable, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        complain(f"{given.components}: {error}")
        return 2
    except NoRecommendation as error:
        complain(str(error))
        return 1
    if isinstance(found, str):
        print(json.dumps({"components": {}, "why": found}) if given.json else found)
        return 0
    print(
        json.dumps({"components": {name: _row(parts[name], name, one) for name, one in found.items()}})
        if given.json
        else describe(parts, found)
    )
    unsteady = [name for name, one in found.items() if one.state.endswith("unsteady")]
    if unsteady:
        complain(
            f"unsteady: {', '.join(unsteady)}; the load is more than {given.cores:g} cores, or its curve, can carry"
        )
    return 1 if unsteady else 0


def read_parts(path: Path, window_s: float) -> dict[str, ComponentWindow]:
    """Raises BadTable with the key that is wrong."""
    tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    parts = {}
    for name, table in tables.items():
        if name not in NAMES or not isinstance(table, dict):
            raise BadTable(f"{name}: unknown; a table for {', '.join(NAMES)} is expected")
        parts[name] = _part(name, table, window_s, path.parent)
    return parts


def _part(name: str, table: dict[str, Any], window_s: float, folder: Path) -> ComponentWindow:
    for key in NEEDED:
        if key not in table:
            raise BadTable(f"{name}.{key} is missing")
    for key, value in table.items():
        if key not in (*NEEDED, *FIELDS, "table"):
            raise BadTable(f"{name}.{key}: unknown; {', '.join((*NEEDED, *FIELDS, 'table'))} are known")
        if key != "table" and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
            raise BadTable(f"{name}.{key}: a number from 0 on is expected, not {value!r}")
    curve = LINEAR
    if "table" in table:
        curve = parse_table((folder / str(table["table"])).read_text(encoding="utf-8-sig").splitlines())
    load = Load(float(table["requests"]), float(table["core_seconds"]), window_s)
    return ComponentWindow(load, curve, **{field: float(table[key]) for key, field in FIELDS.items() if key in table})


def _row(part: ComponentWindow, name: str, one: Given) -> dict[str, Any]:
    row = {"cores": one.cores, "state": one.state, "weight": one.weight, "seats": one.seats, "queue": one.queue}
    row["wait_ms"] = None if one.wait_s is None else one.wait_s * 1000
    return row | ({"pods_per_s": pods_per_s(part, one.cores)} if name == SCHEDULER else {})


def describe(parts: dict[str, ComponentWindow], found: dict[str, Given]) -> str:
    lines = [f"{'component':26}{'cores':>8}{'weight':>8}{'seats':>8}{'queue':>9}{'ms':>9}  state"]
    for name, one in found.items():
        wait = "-" if one.wait_s is None else f"{one.wait_s * 1000:.3f}"
        seats, queue = ("-" if value is None else str(value) for value in (one.seats, one.queue))
        more = f", {pods_per_s(parts[name], one.cores):.1f} Pods per second" if name == SCHEDULER else ""
        lines.append(f"{name:26}{one.cores:8.2f}{one.weight:8g}{seats:>8}{queue:>9}{wait:>9}  {one.state}{more}")
    return "\n".join(lines)
