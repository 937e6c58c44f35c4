"""The cluster's numbers as plain HTML tables, for browsers without scripts."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from carico_agent.lib.page.table import table

MAX_ROWS = 1000
"""Nodes in the table, those with most room first: a browser without scripts loads all of it every few seconds."""

Body = Mapping[str, Any]


def plain_cluster(body: Body, trouble: str = "") -> str:
    """The tables of a body of /v1/cluster.

    >>> nodes = {"name": ["<a>", "b"], "state": ["stale", "ok"], "fits": [3.0, 2.5], "pods": [1, 2], "age_s": [400, 2]}
    >>> page = plain_cluster({"nodes": nodes, "workloads": []})
    >>> "&lt;a&gt;" in page, "2 more Pods fit on 1 of 2 nodes" in page
    (True, True)
    """
    if not body:
        return f"<p>{escape(trouble or 'Nothing is known of the cluster yet.')}</p>"
    nodes = body["nodes"]
    whole = [
        int(fits) if state == "ok" and fits is not None and fits >= 1 else 0
        for state, fits in zip(nodes["state"], nodes["fits"], strict=True)
    ]
    summary = f"{sum(whole)} more Pods fit on {sum(1 for one in whole if one)} of {len(whole)} nodes"
    order = sorted(range(len(whole)), key=lambda at: (-whole[at], nodes["name"][at]))
    more = len(order) - MAX_ROWS
    left_out = f"<p>and {more} nodes with less room</p>" if more > 0 else ""
    titles = ("Node", "State", "More that fit", "Pods", "Published, s ago")
    rows = (_node(nodes, at) for at in order[:MAX_ROWS])
    return f"<p>{escape(summary)}</p>{_workloads(body)}{table('Nodes', titles, rows)}{left_out}"


def _node(nodes: Body, at: int) -> tuple[str, ...]:
    return (str(nodes["name"][at]), *(_show(nodes[column][at]) for column in ("state", "fits", "pods", "age_s")))


def _workloads(body: Body) -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        for workload in body["workloads"]:
            yield (
                str(workload["workload"]),
                _show(workload["pods"]),
                _show(workload["fits"]),
                _show(workload["fits_nodes"]),
            )

    return table("Workloads", ("Workload", "Pods", "More that fit", "On nodes"), rows()) if body["workloads"] else ""


def _show(value: Any) -> str:
    return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
