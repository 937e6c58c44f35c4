"""list every cgroup value that the agent has changed, and what happened to it

examples:
  carico journal
  carico journal --json | tail -5
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from carico_agent.command import add_config, complain, load_settings


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--journal", metavar="FILE", help="the journal (default: where the configuration says)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    from carico_agent.node.plugin_host.journal import read_records

    path, lines = Path(given.journal or settings.journal_path), 0
    try:
        for record in read_records(path):
            lines += 1
            if record is None:
                complain(f"{path}: skipped a damaged line")
            else:
                print(json.dumps(record) if given.json else describe(record))
    except OSError as error:
        complain(str(error))
        return 1
    if not lines and not given.json:
        print(f"{path}: " + ("empty, no value is changed now" if path.exists() else "no journal, nothing was changed"))
    return 0


def describe(record: dict[str, Any]) -> str:
    when = datetime.fromtimestamp(record.get("time", 0), UTC).strftime("%Y-%m-%d %H:%M:%S")
    rest = "  ".join(f"{key}={value}" for key, value in record.items() if key not in ("time", "event"))
    return f"{when}  {record.get('event', '?'):8} {rest}"
