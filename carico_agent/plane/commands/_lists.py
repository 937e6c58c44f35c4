"""`carico plane --audit`: who costs most and who lists how, by the audit log; and a level of its own for the worst."""

import json
from typing import Any

from carico_agent.command import complain
from carico_agent.lib.kube.client import KubeClient
from carico_agent.plane.audit import by_user, costliest
from carico_agent.plane.components import levels
from carico_agent.plane.list_clients import ListReport, read_lists
from carico_agent.plane.list_limit import CannotLimit, limit_manifests, name_of
from carico_agent.plane.scrape import scrape_api
from carico_agent.plane.seats import GROUP, Reserve
from carico_agent.plane.shares import ServerSeats
from carico_agent.plane.window import GAUGES, Window

MAX_ROWS = 10


async def minor_version(client: KubeClient) -> int:
    """36 of 1.36; raises KubeError."""
    said = str((await client.get("/version")).get("minor", ""))
    digits = "".join(letter for letter in said if letter.isdecimal())
    return int(digits) if digits else 0


class AuditReport:
    """What a log says, for JSON and for people."""

    def __init__(self, path: str, minor: int) -> None:
        with open(path, encoding="utf-8", errors="replace") as file:
            self.users = costliest(by_user(file))
            file.seek(0)
            self.lists: ListReport = read_lists(file, minor)

    def as_json(self) -> dict[str, Any]:
        rows = [
            {
                "user": client.user,
                "agent": client.agent,
                "group": client.group,
                "resource": client.resource,
                "lists": one.count,
                "seconds": one.seconds,
                "from_etcd": one.etcd,
                "whole": one.whole,
                "faults": one.faults(),
            }
            for client, one in self.lists.worst()
        ]
        return {"users": self.users, "list_clients": rows}

    def describe(self) -> str:
        users = [f"  {one['user']:44}{one['requests']:9d}   {one['share']:6.1%}" for one in self.users]
        text = "\n".join(["\n\ncostliest users, by the audit log", *users]) if users else ""
        rows = [
            f"  {client.user} ({client.agent or 'no user agent'}): {one.count} LISTs of {client.resource}, "
            f"{one.seconds:.1f} s; {', '.join(one.faults())}"
            for client, one in self.lists.worst()[:MAX_ROWS]
        ]
        if rows:
            text += "\n".join(["\n\nclients that should watch or list in pages, by the audit log", *rows])
            text += "\n  for the first one: carico plane --audit FILE --limit-lists | kubectl apply -f -"
        return text


async def print_limit(client: KubeClient, report: ListReport, cores: float) -> int:
    """The objects for the worst client without such a FlowSchema, as JSON, which kubectl takes; raises KubeError."""
    reserve = Reserve(client)
    shares = (await reserve.levels()).shares
    version = await reserve.version()
    schemas = (await client.get(f"/apis/{GROUP}/{version}/flowschemas")).get("items") or []
    there = {str(one["metadata"]["name"]) for one in schemas}
    worst = [(one, lists) for one, lists in report.worst() if name_of(one) not in there]
    if not worst:
        complain(
            "no client without a FlowSchema of its own lists whole collections repeatedly: there is nothing to limit"
        )
        return 1
    reading = await scrape_api(client)
    now = Window(0.0, {}, {name: values for name, values in reading.totals.items() if name in GAUGES})
    server = ServerSeats()
    server.see(levels(now), shares)
    for one, lists in worst:
        try:
            objects = limit_manifests(one, version, server.value, shares, max(1, round(cores / 4)))
        except CannotLimit as why:
            complain(str(why))
            continue
        complain(f"for {one.user}, {lists.count} LISTs of {one.resource}: {', '.join(lists.faults())}")
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2))
        return 0
    return 1
