"""list the jobs of this node: progress, work left, expected end

A value with ~ is an estimate from few reports or from how long Pods of its workload ran. A stale job has been silent
for ten of its intervals. docs/progress.md says how jobs report.

examples:
  carico progress
  carico progress --json | jq '.jobs[].left_cpu_s'
"""

import argparse
import json
from typing import Any

from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.command import add_socket, ask, complain

BAR = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--json", action="store_true", help="print what the agent answers")


def run(given: argparse.Namespace) -> int:
    try:
        found = ask(given).request("GET", "/v1/progress")
    except (AgentError, AgentUnavailable) as error:
        complain(str(error))
        return 1
    print(json.dumps(found, indent=2) if given.json else "\n".join(view(found)))
    return 0


def view(found: dict[str, Any]) -> list[str]:
    """The jobs as lines, the one with most work left first."""
    if not found["jobs"]:
        return [f"no job reports its progress; jobs report at {found['socket']} (docs/progress.md)"]
    jobs = sorted(found["jobs"], key=lambda job: -(job["left_cpu_s"] or 0.0))
    known = [job["left_cpu_s"] for job in jobs if job["left_cpu_s"] is not None]
    total = f"{len(known)} of {len(jobs)} jobs known, {duration(sum(known))} of CPU left in all"
    return [f"{'job':32} {'done':{BAR + 5}} {'CPU left':>9} {'cores':>6} {'ends in':>9}", *map(line, jobs), "", total]


def line(job: dict[str, Any]) -> str:
    """
    >>> job = {"namespace": "lab", "name": "train", "ratio": 0.5, "left_cpu_s": 90.0, "cores": 0.5, "left_s": 180.0}
    >>> print(line(job | {"uncertain": True, "stale": False}))
    lab/train                        ██████████░░░░░░░░░░  50%   ~1m 30s   0.50   ~3m 00s
    """
    name = "/".join(filter(None, (job["namespace"], job["name"])))[:32]
    mark = "~" if job["uncertain"] else ""
    cores = "?" if job["cores"] is None else f"{job['cores']:.2f}"
    left, end = (duration(job[key], mark) for key in ("left_cpu_s", "left_s"))
    stale = "  stale" if job["stale"] else ""
    return f"{name:32} {bar(job['ratio'])} {left:>9} {cores:>6} {end:>9}{stale}"


def bar(ratio: float | None) -> str:
    """
    >>> bar(0.25), bar(None)
    ('█████░░░░░░░░░░░░░░░  25%', 'does not report          ')
    """
    if ratio is None:
        return f"{'does not report':{BAR + 5}}"
    full = int(ratio * BAR)
    return "█" * full + "░" * (BAR - full) + f" {ratio:4.0%}"


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
