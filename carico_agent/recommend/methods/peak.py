"""The highest value of the last two hours, and a margin. What the forecasts fall back to."""

import numpy as np

from carico_agent.recommend.method import Evidence, Method, Options, Resource, ResourceNeed, amount


class Peak(Method):
    name = "peak"
    summary = "the highest value of the last two hours, plus the margin"
    horizon_s = 7200.0

    def estimate(self, resource: Resource, seen: Evidence, options: Options) -> ResourceNeed:
        tails = [tail for tail in seen.tails[resource] if tail.size]
        factor = 1 + options.margin
        if not tails:  # a checkpoint has no minutes
            highest = seen.histogram(resource).highest()
            why = f"the highest bucket ever seen is {amount(resource, highest)}, plus {options.margin:.0%}"
            return ResourceNeed(highest * factor, highest, highest * factor, self.name, (why,))
        peak = max(float(tail.max()) for tail in tails)
        middle = max(float(np.median(tail)) for tail in tails)
        minutes = max(tail.size for tail in tails)
        why = f"the highest of the last {minutes} minutes is {amount(resource, peak)}, plus {options.margin:.0%}"
        return ResourceNeed(peak * factor, middle, max(peak, seen.highest[resource]) * factor, self.name, (why,))
