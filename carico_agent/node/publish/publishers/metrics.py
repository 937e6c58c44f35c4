"""Prometheus metrics: the status and what the agent itself costs, as text at GET /metrics."""

from aiohttp import web

from carico_agent.lib.net.http import answer_metrics
from carico_agent.lib.net.openapi import TEXT, Operation, operation
from carico_agent.node.publish.families import status_metrics
from carico_agent.node.publish.publisher import PublisherContext


class MetricsPublisher:
    """Answers scrapes; made when asked for, so there is nothing to run."""

    name = "metrics"
    condition = "answers scrapes"

    def __init__(self, context: PublisherContext) -> None:
        self._latest, self._families = context.latest, context.families
        self._scrapes = 0

    @property
    def counters(self) -> dict[str, int]:
        return {"scrapes": self._scrapes}

    async def run(self) -> None:
        return

    async def stop(self) -> None:
        return

    @operation(Operation(content=TEXT))
    async def scrape(self, request: web.BaseRequest) -> web.StreamResponse:
        """Prometheus text"""
        self._scrapes += 1
        latest = self._latest
        families = status_metrics(await latest.current(), latest.age_s) if latest.sequence else []
        return answer_metrics([*families, *self._families()])


async def open_publisher(context: PublisherContext) -> MetricsPublisher:
    publisher = MetricsPublisher(context)
    context.http.add({"/metrics": {"GET": publisher.scrape}})
    return publisher
