"""The numbers as plain HTML tables, for browsers without scripts. Everything that comes from outside is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

NO_TOKEN = (
    "<p>The numbers need the token. Without scripts, send it as a header: "
    "<code>curl -H 'Authorization: Bearer TOKEN' …/v1/status</code></p>"
)
Body = Mapping[str, Any]


def plain_page(status: Body, trouble: str = "") -> str:
    """The tables of a status as /v1/status gives it.

    >>> "&lt;b&gt;" in plain_page({"node": "<b>", "pod_capacity": 3.25, "mode": "measured"})
    True
    """
    if not status:
        return f"<p>{escape(trouble or 'There is no number yet.')}</p>"
    age_s, ttl_s = status.get("age_s", 0.0), status.get("ttl_s", 0.0)
    void = f"<p>This number is {age_s:.0f} s old and void after {ttl_s:g} s.</p>" if age_s > ttl_s else ""
    return void + "".join((_number(status), _resources(status), _workloads(status)))


def _number(status: Body) -> str:
    interval = f"{_show(status.get('low'))} to {_show(status.get('high'))}"
    rows = [
        ("More Pods that fit", _show(status.get("pod_capacity"))),
        ("Interval", interval),
        ("Mode", str(status.get("mode"))),
        ("Limited by", str(status.get("limiting") or "nothing")),
        ("Pods that count", str(status.get("pods"))),
        ("Reserved", str(status.get("reserved", 0))),
        ("Time", str(status.get("time"))),
    ]
    if status.get("method") == "carico":
        direction = ", ".join(f"{name} {_show(share)}" for name, share in (status.get("direction") or {}).items())
        rows += [("Capacity", _show(status.get("capacity"))), ("Direction of the workload", direction)]
    return table(f"Node {status.get('node')}", ("What", "Value"), rows)


def _resources(status: Body) -> str:
    columns = ("usage", "host", "room", "cost_vector")
    rows = [
        (name, *(_percent((status.get(column) or {}).get(name)) for column in columns))
        for name in status.get("usage") or {}
    ]
    return table("Resources", ("Resource", "Used", "Host", "Left", "One Pod takes"), rows)


def _workloads(status: Body) -> str:
    workloads = status.get("workloads") or ()
    rows = [
        (
            workload["workload"],
            str(workload["pods"]),
            ", ".join(f"{name} {_percent(cost)}" for name, cost in workload["cost"].items()),
            _percent(workload.get("arrivals")),
            "per node" if workload.get("per_node") else _show(workload["fits"]),
        )
        for workload in workloads
    ]
    return table("Workloads", ("Workload", "Pods", "One takes", "Arrivals", "More that fit"), rows) if rows else ""


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table; every text in it is escaped here and nowhere else."""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(one)}</td>" for one in row[1:]) + "</tr>"
        for row in rows
    )
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _show(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"
