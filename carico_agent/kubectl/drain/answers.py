"""`drain-check` and `consolidate`, from what is asked to what is printed; returns the exit code."""

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from carico_agent.kubectl.cells import printable
from carico_agent.kubectl.drain.check import Checker, NodeCheck, nodes_table, pods_table, said
from carico_agent.kubectl.drain.consolidate import Consolidation, consolidate
from carico_agent.kubectl.drain.evict import Eviction, Stopped
from carico_agent.kubectl.drain.reading import ReadCluster, read_cluster
from carico_agent.kubectl.reading import Scope, items
from carico_agent.kubectl.tables import as_object, as_text, dump
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError

BY_REQUESTS_ALONE = "no node publishes room: the plan is by requests alone"


async def show_drain(client: KubeClient, scope: Scope, given: argparse.Namespace) -> int:
    """Exit code 1 when a Pod would be left over, kept or lost."""
    cluster = await read_cluster(client, scope)
    names = await _chosen(client, scope, cluster) if given.all else [given.subject]
    if not given.all and given.subject not in {node.name for node in cluster.nodes}:
        raise KubeError(f"there is no node {given.subject}")
    _note([*cluster.notes, *([] if cluster.measured else [BY_REQUESTS_ALONE])])
    checker = Checker(cluster, given.tries, given.in_order)
    checks = [checker.check(name) for name in names]
    if given.output in ("json", "yaml"):
        print(dump({"nodes": [_body(one) for one in checks]}, given.output))
    elif given.all:
        print(as_text(nodes_table(checks), given.output == "wide"))
    else:
        print(_summary(checks[0]))
        if checks[0].requests.fates:
            print(as_text(pods_table(checks[0]), given.output == "wide"))
    return 0 if all(one.clear for one in checks) else 1


async def _chosen(client: KubeClient, scope: Scope, cluster: ReadCluster) -> list[str]:
    """Nodes with the labels that are asked for; the plan itself always knows all of them."""
    if not scope.node_labels:
        return [node.name for node in cluster.nodes]
    return await items(client, "/api/v1/nodes", _name, labelSelector=scope.node_labels)


def _name(node: Object) -> str:
    return str(node["metadata"]["name"])


def _summary(check: NodeCheck) -> str:
    count = len(check.requests.fates)
    parts = [f"{check.left_over} left over by requests"]
    if check.left_over_by_use is not None:
        parts.append(f"{check.left_over_by_use} by use")
    if check.kept:
        parts.append(f"{len(check.kept)} kept by a PodDisruptionBudget")
    text = f"{check.node}: {check.verdict}: {count} Pod{'s' * (count != 1)} would move, {', '.join(parts)}"
    if check.requests.ignored:
        text += f"; {len(check.requests.ignored)} of DaemonSets, static or ending stay"
    return text


def _body(check: NodeCheck) -> dict[str, Any]:
    (row,) = as_object(nodes_table([check]))["nodes"]
    by_use = {} if check.use is None else {fate.pod.uid: fate for fate in check.use.fates}
    pods = [
        {
            "namespace": fate.pod.namespace,
            "pod": fate.pod.name,
            "workload": fate.pod.workload,
            "by_requests": said(fate),
            "left_over_tries": fate.left_over,
            "tries": fate.tries,
            "by_use": said(by_use[fate.pod.uid]) if fate.pod.uid in by_use else None,
            "kept": fate.stays,
            "local_data": fate.pod.local_data,
            "why": fate.why or (by_use[fate.pod.uid].why if fate.pod.uid in by_use else "") or None,
        }
        for fate in check.requests.fates
    ]
    return {**row, "clear": check.clear, "certain": check.requests.certain, "plans": _outcomes(check), "moves": pods}


def _outcomes(check: NodeCheck) -> list[list[str]]:
    """What may wait afterwards, by workload: one list per distinct result of the tries."""
    return [list(one) for one in sorted(set(check.requests.outcomes))]


# ---- consolidate


async def show_consolidation(client: KubeClient, scope: Scope, given: argparse.Namespace) -> int:
    """Prints the plan; carries it out with --evict. Exit code 1 when it had to stop."""
    cluster = await read_cluster(client, scope)
    _note([*cluster.notes, *([] if cluster.measured else [BY_REQUESTS_ALONE])])
    candidates = await _chosen(client, scope, cluster)
    found = consolidate(
        cluster.by_both(), cluster.budgets, cluster.waiting, candidates, given.delete_emptydir_data, given.min_nodes
    )
    freed = found.freed[: given.max_nodes]
    if given.output in ("json", "yaml"):
        print(dump(_plan_body(found, freed), given.output))
    else:
        print(_plan_text(found, freed))
    return await _carry_out(client, scope, given, [one.name for one in freed]) if given.evict else 0


def _plan_body(found: Consolidation, freed: Iterable[Any]) -> dict[str, Any]:
    return {
        "freed": [
            {"node": one.name, "moves": [{"pod": move.pod.key, "to": move.to} for move in one.moves]} for one in freed
        ],
        "needed": found.needed,
        "bound": found.bound,
        "blocked": [{"node": name, "why": why} for name, why in found.blocked],
    }


def _plan_text(found: Consolidation, freed: Iterable[Any]) -> str:
    freed = list(freed)
    nodes = found.needed + len(found.freed)
    lines = [
        f"{len(freed)} of {nodes} nodes are not needed; the sum of all requests alone needs at least {found.bound}"
    ]
    for one in freed:
        lines.append(f"{one.name}: {_moves(len(one.moves))}")
        lines += [f"  {move.pod.key} → {move.to}" for move in one.moves]
    if found.blocked:
        lines.append("these stay:")
        lines += [f"  {name}: {why}" for name, why in found.blocked]
    return "\n".join(map(printable, lines))


def _moves(count: int) -> str:
    return "empty" if not count else "1 move empties it" if count == 1 else f"{count} moves empty it"


async def _carry_out(client: KubeClient, scope: Scope, given: argparse.Namespace, names: Iterable[str]) -> int:
    eviction = Eviction(client, scope, _say, given.wait, given.delete_emptydir_data)
    try:
        for name in names:
            await eviction.empty(name)
    except Stopped as stopped:
        print(f"carico: stopped: {stopped}", file=sys.stderr)
        return 1
    return 0


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


def _note(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
