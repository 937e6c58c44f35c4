"""What an agent published during one run on a real node, and what was true.

Truth is what the whole run shows afterwards: a straight line through the mean usage of each number of Pods (as long
as the channel is not saturated) says how many Pods fit until it reaches its limit.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

SETTLED_S = 2.0
SATURATED = 0.97


@dataclass
class NodeRun:
    """What the agent published, ten times a second or whenever it changed."""

    name: str
    resource: str
    limit: float
    statuses: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def column(self, *path: str) -> np.ndarray:
        def dig(value: Any) -> float:
            for key in path:
                value = value[key]
            return np.nan if value is None else float(value)

        return np.array([dig(status) for status in self.statuses])

    @property
    def t(self) -> np.ndarray:
        return self.column("t") - self.statuses[0]["t"]

    def settled(self) -> np.ndarray:
        """True from two seconds after each change of the number of Pods."""
        pods, t = self.column("pods"), self.t
        changed_t = np.maximum.accumulate(np.where(np.diff(pods, prepend=pods[0]) != 0, t, -np.inf))
        return t - changed_t >= SETTLED_S

    def after_first_burst(self) -> np.ndarray:
        pods = self.column("pods")
        ended = np.flatnonzero((pods[:-1] > 0) & (pods[1:] == 0))
        return np.arange(len(pods)) > (ended[0] if len(ended) else len(pods))

    def truth(self) -> tuple[float, float]:
        """Usage without Pods and per Pod, by a straight line through the settled means."""
        pods, usage, settled = self.column("pods"), self.column("usage", self.resource), self.settled()
        levels = sorted({int(n) for n in pods[settled]})
        means = np.array([usage[settled & (pods == n)].mean() for n in levels])
        free = means < SATURATED
        cost, base = np.polyfit(np.array(levels)[free], means[free], 1)
        return float(base), float(cost)

    def true_capacity(self) -> np.ndarray:
        base, cost = self.truth()
        return np.maximum(0.0, (self.limit - base - cost * self.column("pods")) / cost)

    def errors(self) -> np.ndarray:
        counted = self.settled() & self.after_first_burst()
        return (self.column("pod_capacity") - self.true_capacity())[counted]
