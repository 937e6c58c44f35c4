"""A forecast of the next minutes from the last two hours, plus a multiple of its standard deviation."""

from carico_agent.recommend import forecast
from carico_agent.recommend.arima import fit
from carico_agent.recommend.method import Evidence, Method, Options, Resource, ResourceNeed
from carico_agent.recommend.series import Array


class Arima(Method):
    name = "arima"
    summary = "an ARIMA forecast plus its deviation; for the next minutes (experimental)"
    horizon_s = forecast.HORIZON_S

    def estimate(self, resource: Resource, seen: Evidence, options: Options) -> ResourceNeed:
        def made(x: Array, steps: int) -> tuple[Array, Array]:
            found = fit(x)
            return found.forecast(steps), found.deviation(steps, options.variance)

        return forecast.estimate(self.name, made, resource, seen, options)
