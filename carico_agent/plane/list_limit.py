"""A priority level for clients that list too much, and a FlowSchema that sends one there, for `kubectl apply`. Pure.

Few seats, no borrowing, a short queue per client: their LISTs wait for each other, and other clients' requests do not
wait for them. All such clients share one level, for a level with one share has 3 of 600 seats already: three clients
with a level each still ran 9 LISTs at once, and the p99 of Lease renewals fell by 1.2 only.

Watches, GETs and writes of the client stay where they were.
"""

import re
from collections.abc import Mapping
from typing import Any

from carico_agent.plane.list_clients import ListClient
from carico_agent.plane.seats import GROUP
from carico_agent.plane.shares import seats_of

PRECEDENCE = 850
"""Before kube-system-service-accounts (900) and service-accounts (9000); after nodes and leader elections."""
LEVEL = "carico-limit-lists"
QUEUES, QUEUE_LENGTH = 8, 50
SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")


class CannotLimit(ValueError):
    """No priority level can, or should, limit this client; the text says why."""


def limit_manifests(
    client: ListClient, version: str, server: int, shares: Mapping[str, int], seats: int
) -> list[dict[str, Any]]:
    """The level with `seats` seats, and the FlowSchema for this client's LISTs; raises CannotLimit.
    `version`: of the API group, v1beta3 or newer; `server`, `shares`: the server's seats and the levels' shares."""
    if client.masters:
        raise CannotLimit(
            f"{client.user} is of system:masters, which no priority level limits; give it other rights first"
        )
    if client.user.startswith(("system:node:", "system:kube-")):
        raise CannotLimit(f"{client.user} is a part of Kubernetes: find out why it lists {client.resource}")
    name = name_of(client)
    others = {level: own for level, own in shares.items() if level != LEVEL}
    limited = {
        "nominalConcurrencyShares": shares_for(server, others, seats),
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {
            "type": "Queue",
            "queuing": {"queues": QUEUES, "handSize": 1, "queueLengthLimit": QUEUE_LENGTH},
        },
    }
    rule = {
        "subjects": [_subject(client.user)],
        "resourceRules": [
            {
                "verbs": ["list"],
                "apiGroups": [client.group],
                "resources": [client.resource],
                "clusterScope": True,
                "namespaces": ["*"],
            }
        ],
    }
    flow = {
        "priorityLevelConfiguration": {"name": LEVEL},
        "matchingPrecedence": PRECEDENCE,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [rule],
    }
    return [
        _object(version, "PriorityLevelConfiguration", LEVEL, {"type": "Limited", "limited": limited}),
        _object(version, "FlowSchema", name, flow),
    ]


def name_of(client: ListClient) -> str:
    """Name of a client's FlowSchema.

    >>> name_of(ListClient("system:serviceaccount:tools:Lister_1", "", "", "configmaps"))
    'carico-limit-tools-lister-1-configmaps'
    """
    found = SERVICE_ACCOUNT.fullmatch(client.user)
    user = "-".join(found.groups()) if found else client.user
    words = re.sub(r"[^a-z0-9]+", "-", f"{user}-{client.resource}".lower()).strip("-")
    return f"carico-limit-{words}"[:63].rstrip("-")


def shares_for(server: int, shares: Mapping[str, int], seats: int) -> int:
    """The most shares with which a new level has no more than `seats` seats; at least 1.

    >>> shares_for(600, {"system": 30, "workload-low": 215}, 3), shares_for(600, {"system": 30}, 1)
    (1, 1)
    """
    own = 1
    while seats_of(server, {**shares, "": own + 1})[""] <= seats:
        own += 1
    return own


def _subject(user: str) -> dict[str, Any]:
    if found := SERVICE_ACCOUNT.fullmatch(user):
        return {"kind": "ServiceAccount", "serviceAccount": {"namespace": found[1], "name": found[2]}}
    return {"kind": "User", "user": {"name": user}}


def _object(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": "carico-plane-lists"}
    meta = {"name": name, "labels": labels}
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": meta, "spec": spec}
