"""The status in one line, for humans."""

from carico_agent.node.publish.status import Status
from carico_agent.node.publish.words import room_sentence


def human_line(status: Status) -> str:
    """Time, usage per resource, Pods, what fits with interval and mode, what limits it.

    >>> human_line(Status(time="2024-01-01T10:00:00Z", usage={"cpu": 0.25}, pod_capacity=3.2, low=2.5, pods=1))
    '10:00:00  cpu 25.0%  Pods 1  Pod-Capacity 3.2 [2.5–∞] learning, no limit seen'
    """
    usage = "  ".join(f"{name} {_percent(value)}" for name, value in status.usage.items())
    return f"{status.time[11:19]}  {usage}  Pods {status.pods}  {room_sentence(status)}"


def _percent(value: float | None) -> str:
    return "    ?" if value is None else f"{value:5.1%}"
