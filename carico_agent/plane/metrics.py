"""The numbers of `carico plane --serve` for Prometheus."""

from carico_agent.lib.net.metrics import Family, process
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.plane.diagnosis import PlaneDiagnosis

COMPONENT_GAUGES = {  # field of a component: name, help
    "arrivals_per_s": ("arrivals_per_second", "Requests per second, by component."),
    "served_per_core_s": ("served_per_core_second", "Requests that one core finishes in a second."),
    "cores": ("cores", "Cores in use."),
    "utilisation": ("utilisation_ratio", "Cores in use over cores that could be."),
    "waiting": ("waiting_requests", "Requests (or Pods, or keys) that wait."),
    "seats": ("seats", "Requests that may execute at once."),
    "throttled_ratio": ("throttled_ratio", "Throttled CFS periods over all."),
}


def families(seen: PlaneDiagnosis | None, reserve_shares: int, missed: int, requests: int) -> list[Family]:
    """All metrics. `seen`: the newest diagnosis; `missed`: periods without one; `requests`: sent to the API server."""
    gauges = {field: _gauge(name, help) for field, (name, help) in COMPONENT_GAUGES.items()}
    for row in seen.components if seen else ():
        for field, family in gauges.items():
            family.add(getattr(row, field), component=row.name)
    advice = seen.recommendation if seen else ""
    executing = _gauge("executing_requests", "Requests executing at once, mean of the window.")
    recommended = _gauge("recommended_seats", "Seats recommended for all levels together.")
    return [
        *gauges.values(),
        executing.add(seen.executing if seen else None),
        recommended.add(advice["seats"] if isinstance(advice, dict) else None),
        _gauge("reserve_shares", "Shares of carico-reserve; 0 when there is none.").add(reserve_shares),
        _gauge("missed_periods", "Periods without metrics of the API server.").add(missed),
        Family("carico_plane_requests_total", "counter", "Requests sent to the API server.").add(requests),
        *process(OwnCost.cpu_s(), OwnCost.resident_bytes(), "this process"),
    ]


def _gauge(name: str, help: str) -> Family:
    return Family(f"carico_plane_{name}", "gauge", help)
