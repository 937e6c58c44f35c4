"""list the jobs that report: done, rate, work left, expected end

The Pods of one Job are one row; it ends with the last of them. Processes outside of Pods are listed as
processes/NAME-PID. The end has an interval: what the second slowest and the second fastest of the last reports would
make of it. A value with ~ comes from few or uneven reports. A stale job has been silent for ten of its intervals.
docs/progress.md says how jobs report.

--all reads the jobs of the whole cluster from what its nodes publish, with your kubeconfig alone: at most eight per
node.

examples:
  carico progress
  carico progress --all
  carico progress --json | jq '.jobs[].left_cpu_s'
"""

import argparse
import asyncio
import json
from datetime import datetime
from typing import Any

from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.command import add_socket, ask, complain
from carico_agent.progress.rows import rows

BAR = 20
KNOWN_FROM = {"cpu": "reports (CPU)", "time": "reports (time)", "history": "its workload", "unknown": "-"}


def arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--json", action="store_true", help="print what the agent answers, one entry per Pod")
    parser.add_argument("--all", action="store_true", help="the jobs of all nodes of the cluster")
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="--all: default $KUBECONFIG, or ~/.kube/config"
    )
    parser.add_argument("--context", default="", metavar="NAME", help="--all: a context of it")


def run(given: argparse.Namespace) -> int:
    if given.all:
        return _run_all(given)
    try:
        found = ask(given).request("GET", "/v1/progress")
    except (AgentError, AgentUnavailable) as error:
        complain(str(error))
        return 1
    print(json.dumps(found, indent=2) if given.json else "\n".join(view(found)))
    return 0


def _run_all(given: argparse.Namespace) -> int:
    from carico_agent.lib.kube.errors import KubeError
    from carico_agent.progress.cluster import jobs_of, read_nodes

    try:
        found = jobs_of(asyncio.run(read_nodes(given.kubeconfig, given.context)))
    except (KubeError, OSError, ValueError) as error:
        complain(str(error))
        return 1
    print(json.dumps({"jobs": found}, indent=2) if given.json else "\n".join(view_all(found)))
    return 0


def view(found: dict[str, Any]) -> list[str]:
    """The jobs as lines, the one that ends last first."""
    if not found["jobs"]:
        return [f"no job reports its progress; jobs report at {found['socket']} (docs/progress.md)"]
    shown = rows(found["jobs"])
    known = [row["left_cpu_s"] for row in shown if row["left_cpu_s"] is not None]
    head = f"{'job':32} {'done':{BAR + 5}} {'rate':>9} {'CPU left':>9} {'cores':>6} {'ends in':>9} {'interval':>17} "
    total = f"{len(known)} of {len(shown)} jobs known, {duration(sum(known))} of CPU left in all"
    return [f"{head}{'ends at':>14} known from", *map(line, shown), "", total]


def line(row: dict[str, Any]) -> str:
    """
    >>> row = {"namespace": "lab", "name": "train", "pods": 3, "ratio": 0.5, "left_cpu_s": 90.0, "cores": 0.5}
    >>> row |= {"left_s": 180.0, "left_low_s": 170.0, "left_high_s": 200.0, "per_s": 0.2, "end": None, "source": "cpu"}
    >>> print(line(row | {"uncertain": True, "stale": False, "ended": False})[:95])
    lab/train (3 Pods)               ██████████░░░░░░░░░░  50%    12/min   ~1m 30s   0.50   ~3m 00s
    """
    name = "/".join(filter(None, (row["namespace"], row["name"])))
    name = (f"{name[:22]} ({row['pods']} Pods)" if row["pods"] > 1 else name)[:32]
    mark = "~" if row["uncertain"] else ""
    cores = "?" if row["cores"] is None else f"{row['cores']:.2f}"
    left, end = (duration(row[key], mark) for key in ("left_cpu_s", "left_s"))
    numbers = f"{rate(row['per_s']):>9} {left:>9} {cores:>6} {end:>9} {interval(row):>17}"
    return f"{name:32} {bar(row['ratio'])} {numbers} {clock(row['end']):>14} {_state(row)}"


def _state(row: dict[str, Any]) -> str:
    if row["ended"]:
        return "it has ended" if row["ratio"] >= 1 else "it ended before it was done"
    if row["stale"]:
        return "stale: silent"
    return "its last report" if row["ratio"] >= 1 else KNOWN_FROM.get(row["source"], row["source"])


def interval(row: dict[str, Any]) -> str:
    if not row["left_s"] or row["left_low_s"] is None or row["left_high_s"] is None:
        return ""
    return f"{duration(row['left_low_s'])} to {duration(row['left_high_s'])}"


def view_all(found: list[dict[str, Any]]) -> list[str]:
    """The jobs of the cluster as lines, the one that ends first first."""
    if not found:
        return ["no node of this cluster publishes a job that reports its progress (docs/progress.md)"]
    head = f"{'node':24} {'job':40} {'done':{BAR + 5}} {'ends at':>14} as of"
    return [head, *map(_line_of_all, found)]


def _line_of_all(job: dict[str, Any]) -> str:
    names = f"{job['node'][:24]:24} {job['name'][:40]:40}"
    return f"{names} {bar(job['ratio'])} {clock(job['end']):>14} {clock(job['as_of'])}"


def bar(ratio: float | None) -> str:
    """
    >>> bar(0.25), bar(None)
    ('█████░░░░░░░░░░░░░░░  25%', '                         ')
    """
    if ratio is None:
        return " " * (BAR + 5)
    full = int(ratio * BAR)
    return "█" * full + "░" * (BAR - full) + f" {ratio:4.0%}"


def rate(per_s: float | None) -> str:
    """
    >>> rate(12.34), rate(0.5), rate(0.001), rate(None)
    ('12.3/s', '30/min', '3.6/h', '?')
    """
    if per_s is None:
        return "?"
    for factor, unit in ((1, "s"), (60, "min")):
        if per_s * factor >= 1:
            return f"{per_s * factor:.3g}/{unit}"
    return f"{per_s * 3600:.3g}/h"


def clock(time: str | None) -> str:
    """Time of day where the reader is; with the date when that is another day."""
    try:
        then = datetime.fromisoformat(time or "").astimezone()
    except ValueError:  # empty, or another program wrote it
        return "?"
    return f"{then:%H:%M:%S}" if then.date() == datetime.now().astimezone().date() else f"{then:%d %b %H:%M}"


def duration(seconds: float | None, mark: str = "") -> str:
    """
    >>> duration(59.6), duration(3700, "~"), duration(None)
    ('1m 00s', '~1h 01m', '?')
    """
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{mark}{whole}s"
    return (
        f"{mark}{whole // 60}m {whole % 60:02}s" if whole < 3600 else f"{mark}{whole // 3600}h {whole // 60 % 60:02}m"
    )
