"""print how many more Pods fit now

Asks the agent on this node. Exit code 1 when no agent answers or its number has expired.

examples:
  carico status
  carico status --json | jq .pod_capacity
"""

import argparse
import json
from collections.abc import Sequence

from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.command import add_config, add_socket, ask_configured, complain
from carico_agent.node.publish.status import Status, WorkloadStatus, from_json
from carico_agent.node.publish.words import (
    ahead_sentence,
    cores_wanted,
    interval,
    next_workloads,
    room_sentence,
    takes,
    unit_sentence,
    why_learning,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_socket(parser)
    parser.add_argument("--json", action="store_true", help="the whole status as JSON")
    parser.add_argument("--print-socket", action="store_true", help="only print which socket would be asked")


def run(given: argparse.Namespace) -> int:
    agent = ask_configured(given)
    if agent is None:
        return 2
    if given.print_socket:
        print(agent.path)
        return 0
    try:
        body = agent.status()
    except (AgentError, AgentUnavailable) as error:
        complain(str(error))
        return 1
    status, age_s = from_json(body), float(body["age_s"])
    print(json.dumps(body, indent=2) if given.json else describe(status, age_s))
    return 0 if age_s <= status.ttl_s else 1


def describe(status: Status, age_s: float) -> str:
    """The status for humans."""
    lines = [f"{status.node}: {headline(status, age_s)}"]
    if (ahead := ahead_sentence(status)) and age_s <= status.ttl_s:
        lines.append(f"  ahead    {ahead}")
    if status.mode == "learning" and status.pod_capacity is not None:
        lines.append(f"  learning {why_learning(status)}")
    for name, value in status.usage.items():
        lines.append(f"  {name:8} {_used(status, name, value)}")
    if host := takes(status.host, status.sizes):
        lines.append(f"  host     takes {host}")
    if unit := unit_sentence(status):
        lines.append(f"  carico   {unit}")
    lines.append(f"  Pods     {status.pods} running, slots {number(status.slots)}  ({status.runtime})")
    if reserved := reserved_sentence(status):
        lines.append(f"  reserved {reserved}")
    lines += [f"  {line}" for line in workloads_table(status, next_workloads(status) + per_node_workloads(status))]
    lines += [f"  missing  {why}" for why in status.absent.values()]
    return "\n".join(lines)


def reserved_sentence(status: Status) -> str:
    """What reservations hold; nothing where there is none.

    >>> reserved_sentence(Status(reserved=2, available=3))
    'room for 2 Pods is held by reservations, 3 more can be reserved'
    """
    if not status.reserved:
        return ""
    pods = "1 Pod is" if status.reserved == 1 else f"{status.reserved} Pods is"
    return f"room for {pods} held by reservations, {status.available} more can be reserved"


def headline(status: Status, age_s: float) -> str:
    if age_s > status.ttl_s:
        return f"no valid number: the last one is {age_s:.0f} s old (it expires after {status.ttl_s:g} s)"
    return "Pod-Capacity unknown" if status.pod_capacity is None else room_sentence(status)


def _used(status: Status, name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    cost = {name: status.cost_vector.get(name) or None}
    if name == "cpu" and status.sizes.get("cpu"):
        next_pod = takes(cost, status.sizes)
        return cores_wanted(status, value) + (f", the next Pod takes {next_pod}" if next_pod else "")
    amount = f" ({takes({name: value}, status.sizes)})" if status.sizes.get(name) and name == "memory" else ""
    next_pod = takes(cost, status.sizes).removeprefix(f"{name} ")
    return f"{value:.1%} used{amount}" + (f", the next Pod takes {next_pod}" if next_pod else "")


def per_node_workloads(status: Status) -> list[WorkloadStatus]:
    return sorted(
        (workload for workload in status.workloads if workload.per_node), key=lambda workload: workload.workload
    )


def workloads_table(status: Status, workloads: Sequence[WorkloadStatus]) -> list[str]:
    """One line per workload, below a heading; nothing where no workload is known."""
    if not workloads:
        return []
    wide = max(len("workload"), *(len(workload.workload) for workload in workloads))
    lines = [f"{'workload':{wide}}  Pods  more fit          one takes               comes next"]
    for workload in workloads:
        fits = interval(workload.fits, workload.low, workload.high) if workload.trusted else "learning"
        comes = "per node" if workload.per_node else f"{workload.arrivals:.0%}"
        one = takes(workload.cost, status.sizes) or "?"
        limits = f", limited by {workload.limiting}" if workload.trusted and workload.limiting else ""
        lines.append(f"{workload.workload:{wide}}  {workload.pods:4d}  {fits:16}  {one:22}  {comes}{limits}")
    return lines


def number(value: float | None) -> str:
    return "unbounded" if value is None else f"{value:.1f}"
