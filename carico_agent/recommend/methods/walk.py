"""The last value and a deviation that grows with √τ: what remains of a forecast when nothing is forecast.

The control of `arima`: its source suspects that the deviation alone does the work.
"""

import numpy as np

from carico_agent.recommend import forecast
from carico_agent.recommend.arima import MIN_SAMPLES, CannotFit
from carico_agent.recommend.method import Evidence, Method, Options, Resource, ResourceNeed
from carico_agent.recommend.series import Array


def walk(x: Array, steps: int) -> tuple[Array, Array]:
    """x_t, and sd(Δx)·√τ."""
    if x.size < MIN_SAMPLES:
        raise CannotFit(f"{x.size} samples, {MIN_SAMPLES} are needed")
    deviation = float(np.diff(x).std(ddof=1)) * np.sqrt(np.arange(1, steps + 1))
    return np.full(steps, float(x[-1])), np.asarray(deviation)


class Walk(Method):
    name = "walk"
    summary = "the last value plus a deviation that grows with time; for the next minutes"
    horizon_s = forecast.HORIZON_S

    def estimate(self, resource: Resource, seen: Evidence, options: Options) -> ResourceNeed:
        return forecast.estimate(self.name, walk, resource, seen, options)
