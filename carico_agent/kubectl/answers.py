"""Each action of the plugin, from what is asked to what is printed; returns the exit code."""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace

from carico_agent.kubectl import refusals
from carico_agent.kubectl.cluster import cluster_of
from carico_agent.kubectl.fitting import fit_table, whole
from carico_agent.kubectl.nodes import nodes_table
from carico_agent.kubectl.pods import pods_table
from carico_agent.kubectl.reading import Scope, read
from carico_agent.kubectl.tables import Table, Threshold, as_object, as_text, dump, limited, sort
from carico_agent.lib.fit import Wanted
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from carico_agent.node.commands.fit import read_wanted


async def show_nodes(
    client: KubeClient, scope: Scope, given: argparse.Namespace, thresholds: Iterable[Threshold]
) -> int:
    """Nodes, or with --pods Pods; Pods alone for a user who may not list nodes."""
    seen = await read(client, scope)
    _note(seen.notes)
    views = seen.views(scope.resource)
    if given.pods or seen.nodes is None:
        workloads = {view.name: view.workloads for view in views if view.workloads is not None}
        table = pods_table(seen.pods, workloads, {view.name: view.allocatable for view in views}, given.label_columns)
    else:
        table = nodes_table(views, seen.pods, given.label_columns)
    _print(_chosen(table, given, thresholds), given.output)
    return 0


async def show_fit(client: KubeClient, scope: Scope, given: argparse.Namespace, thresholds: Iterable[Threshold]) -> int:
    """How many more of a workload fit, node by node."""
    wanted = (
        read_wanted(given.filename, scope.namespace) if given.filename else _of_workload(given.subject, scope.namespace)
    )
    seen = await read(client, replace(scope, only=""))
    _note(seen.notes)
    if seen.nodes is None:
        raise KubeError("what fits cannot be known without the right to list nodes")
    views = {view.name: view for view in seen.views(scope.resource)}
    table = fit_table(cluster_of(client, seen, scope), views, seen.pods, wanted)
    fits = whole(table)
    shown = _chosen(table, given, thresholds)
    if given.output in ("json", "yaml"):
        body = {
            "workload": wanted.workload,
            "count": given.count,
            "fit": fits >= given.count,
            "fits": fits,
            **as_object(shown),
        }
        print(dump(body, given.output))
    else:
        verdict = "fits" if fits >= given.count else "does not fit"
        print(f"{given.count} × {wanted.workload} {verdict}: room for {fits} on {len(views)} nodes")
        print(as_text(shown, given.output == "wide"))
    return 0 if fits >= given.count else 1


async def show_why(client: KubeClient, scope: Scope, given: argparse.Namespace) -> int:
    """Which nodes refuse a Pod; 1 while it waits."""
    answer = await refusals.why(client, scope, given.subject, given.extender)
    _note(answer.notes)
    structured = given.output in ("json", "yaml")
    print(dump(answer.body(), given.output) if structured else refusals.describe(answer))
    return int(answer.waits)


def _of_workload(workload: str, namespace: str) -> Wanted:
    return Wanted(workload if "/" in workload else f"{namespace}/{workload}")


def _chosen(table: Table, given: argparse.Namespace, thresholds: Iterable[Threshold]) -> Table:
    """Sorted and limited; a total of some rows would be none."""
    thresholds = list(thresholds)
    if thresholds:
        table = replace(table, rows=limited(table, thresholds), total=None)
    if given.sort:
        table = replace(table, rows=sort(table, given.sort, given.reverse))
    elif given.reverse:
        table = replace(table, rows=table.rows[::-1])
    return table


def _print(table: Table, output: str) -> None:
    if output in ("json", "yaml"):
        print(dump(as_object(table), output))
    elif table.rows:
        print(as_text(table, output == "wide"))
    else:
        _note([f"no {table.name} found"])


def _note(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
