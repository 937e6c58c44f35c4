"""The whole cluster for people, as JSON: every node's room, what each workload finds, and where.

Nodes are columns and not objects: 5,000 of them are then a third of the bytes, and the page sorts arrays.

Why workloads come one at a time: one takes 2 to 3 ms over 5,000 nodes, and kube-scheduler must not wait for 40 of them.
Why their costs are not kept as columns as those are which schedulers ask for (workload_columns.py): each column kept
costs a microsecond for every node that publishes, from the first view of the page on.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.nodes import Floats, Mask, NodeColumns, PendingPod
from carico_agent.extender.workload_room import WorkloadRoom, room_for
from carico_agent.lib.kube.workloads import RESOURCES

MAX_WORKLOADS = 40
"""Workloads on the page: those with most Pods first."""
NODES_PER_STEP = 500

Body = dict[str, Any]


def nodes_body(nodes: NodeColumns, now_s: float) -> Body:
    """Every node, a list per column; None where something is unknown.

    >>> from carico_agent.extender.nodes import NodeState
    >>> body = nodes_body(NodeColumns.of([NodeState("a", 8, 0, 150, assigned=2), NodeState("b")]), now_s=10)
    >>> body["name"], body["state"], body["fits"], body["age_s"]
    (['a', 'b'], ['ok', 'unknown'], [6.0, None], [10.0, None])
    """
    age_s = now_s - nodes.published_s
    return {
        "name": nodes.names(),
        "state": _states(nodes, now_s),
        "fits": _listed(np.maximum(nodes.available(), 0.0), 1),
        "places": _listed(nodes.places, 1),
        "pods": nodes.assigned.astype(int).tolist(),
        "starting": nodes.starting.astype(int).tolist(),
        "cpu": _listed(nodes.cpu, 2),
        "memory": _listed(nodes.memory, 0),
        "left_cpu": _listed(nodes.left_cpu, 2),
        "left_memory": _listed(nodes.left_memory, 0),
        "work_jobs": nodes.work_jobs.astype(int).tolist(),
        "work_s": _listed(nodes.work_s, 0),
        "age_s": _listed(age_s, 0),
        "ttl_s": _listed(nodes.ttl_s, 0),
    }


def is_valid(nodes: NodeColumns, now_s: float) -> Mask:
    """Nodes whose number has not expired."""
    valid: Mask = now_s - nodes.published_s <= nodes.ttl_s
    return valid


def workloads(cluster: Cluster, now_s: float) -> Iterator[Body | None]:
    """The workloads with most Pods, one at a time; None after other pieces of work of a millisecond or so."""
    known, pods = cluster.costs.known(), Counter[str]()
    names = iter(list(cluster.nodes))
    while step := list(islice(names, NODES_PER_STEP)):
        for name in step:
            for workload, tally in cluster.ledger.workloads(name).items():
                pods[workload] += tally.pods
        yield None
    # those that no node has measured come last: DaemonSets' Pods are among them, which no scheduler places
    listed = sorted(known.keys() | pods.keys(), key=lambda workload: (workload not in known, -pods[workload], workload))
    for workload in listed[:MAX_WORKLOADS]:
        yield {"workload": workload, "pods": pods[workload], "known_on": known.get(workload, 0)} | _fits(
            cluster, workload, now_s
        )


def where(cluster: Cluster, workload: str, now_s: float) -> Body:
    """How many more of one workload each node takes, and which resource limits; None where nothing is measured."""
    nodes = cluster.table.all_uncached()
    found = _room(cluster, nodes, workload, now_s)
    if found is None:
        return {"workload": workload, "resources": RESOURCES, "name": nodes.names(), "fits": None, "limiting": None}
    fits = np.where(is_valid(nodes, now_s), np.maximum(found.fits, 0.0), np.nan)
    limiting = [None if fit is None else at for fit, at in zip(_listed(fits, 1), found.limiting.tolist(), strict=True)]
    return {
        "workload": workload,
        "resources": RESOURCES,
        "name": nodes.names(),
        "fits": _listed(fits, 1),
        "limiting": limiting,
    }


def _fits(cluster: Cluster, workload: str, now_s: float) -> Body:
    nodes = cluster.table.all_uncached()
    found, cost = _room(cluster, nodes, workload, now_s), cluster.costs.of(workload, now_s)
    measured = {"cost": None if cost is None else [None if one != one else one for one in cost]}
    if found is None:
        return {"fits": None, "fits_nodes": None, "limiting": None} | measured
    counted = is_valid(nodes, now_s) & ~np.isnan(found.fits)
    whole = np.where(counted, np.floor(np.maximum(found.fits, 0.0) + 1e-6), 0.0)
    limits = np.bincount(found.limiting[counted], minlength=len(RESOURCES))
    limiting = RESOURCES[int(limits.argmax())] if limits.any() else None
    return {"fits": int(whole.sum()), "fits_nodes": int((whole >= 1).sum()), "limiting": limiting} | measured


def _room(cluster: Cluster, nodes: NodeColumns, workload: str, now_s: float) -> WorkloadRoom | None:
    """None: no node has measured this workload, or none publishes its room."""
    cost = cluster.costs.of(workload, now_s)
    return None if cost is None else room_for(nodes, PendingPod("", workload, elsewhere=cost))


def _states(nodes: NodeColumns, now_s: float) -> list[str]:
    """ok; stale: its number has expired; unknown: it has never published one."""
    unknown, valid = np.isnan(nodes.places), is_valid(nodes, now_s)
    found: list[str] = np.where(unknown, "unknown", np.where(valid, "ok", "stale")).tolist()
    return found


def _listed(column: Floats, digits: int) -> list[float | None]:
    return [value if abs(value) < 1e300 else None for value in np.round(column, digits).tolist()]
