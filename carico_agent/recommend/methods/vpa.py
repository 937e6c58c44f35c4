"""What Kubernetes' Vertical Pod Autoscaler would recommend: a percentile of days of decaying history, and a margin."""

from carico_agent.recommend.method import Evidence, Method, Options, Resource, ResourceNeed, amount
from carico_agent.recommend.vpa import bounds


class Vpa(Method):
    name = "vpa"
    summary = "a percentile of decaying history, as the Vertical Pod Autoscaler"
    horizon_s = 8 * 86_400.0

    def estimate(self, resource: Resource, seen: Evidence, options: Options) -> ResourceNeed:
        found = bounds(seen.histogram(resource), seen.days, options.share, options.margin)
        of = "minutes" if resource == "cpu" else "daily peaks"
        percentile = amount(resource, found.target / (1 + options.margin))
        why = f"p{100 * options.share:g} of {of} over {seen.days:.2g} days is {percentile}, plus {options.margin:.0%}"
        return ResourceNeed(found.target, found.lower, found.upper, self.name, (why,))
