"""how many more Pods fit, now

Asks the agent on this node. Exit code 1 when no agent answers or its number has expired.

examples:
  carico status
  carico status --json | jq .pod_capacity
"""

import argparse
import json

from carico_agent.cli._common import add_socket, ask, complain
from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.publish.status import Status, from_json


def arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--json", action="store_true", help="the whole status as JSON")


def run(given: argparse.Namespace) -> int:
    try:
        body = ask(given).status()
    except (AgentError, AgentUnavailable) as error:
        complain(str(error))
        return 1
    status, age_s = from_json(body), float(body["age_s"])
    print(json.dumps(body, indent=2) if given.json else describe(status, age_s))
    return 0 if age_s <= status.ttl_s else 1


def describe(status: Status, age_s: float) -> str:
    """The status for humans."""
    lines = [f"{status.node}: {headline(status, age_s)}"]
    for name, value in status.usage.items():
        cost = status.cost_vector.get(name)
        used = "unknown" if value is None else f"{value:.1%} used"
        lines.append(f"  {name:8} {used}" + (f", a Pod takes {cost:.1%}" if cost else ""))
    lines.append(f"  Pods     {status.pods} running, slots {number(status.slots)}  ({status.runtime})")
    lines += [f"  missing  {why}" for why in status.absent.values()]
    return "\n".join(lines)


def headline(status: Status, age_s: float) -> str:
    if age_s > status.ttl_s:
        return f"no valid number: the last one is {age_s:.0f} s old (it is void after {status.ttl_s:g} s)"
    if status.pod_capacity is None:
        return "Pod-Capacity unknown"
    limited = f", limited by {status.limiting}" if status.limiting else ""
    interval = f"{number(status.low)} to {number(status.high)}"
    return f"room for {status.pod_capacity:.1f} more Pods ({interval}; {status.mode}{limited})"


def number(value: float | None) -> str:
    return "unbounded" if value is None else f"{value:.1f}"
