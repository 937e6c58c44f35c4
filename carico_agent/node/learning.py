"""Learning with other nodes: what this one sends to the aggregation server, and what it takes from it."""

import asyncio
from collections.abc import Callable

from carico_agent.federation.client import FederationClient
from carico_agent.federation.contribution import Contribution, GlobalView
from carico_agent.lib.supervise.tasks import Supervisor
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.status import FederationStatus
from carico_agent.node.source import Source
from carico_agent.settings import Settings


class ClusterLearning:
    """Exchanges the local model for the cluster's, if there is an aggregation server."""

    def __init__(self, settings: Callable[[], Settings], node: str, source: Source, latest: LatestStatus) -> None:
        self._settings, self._source, self._latest = settings, source, latest
        federation = settings().federation
        self._client = FederationClient(federation, node, source.resources, self._contribution, self._learned)

    def start(self, supervisor: Supervisor) -> None:
        if self._settings().federation.aggregators:
            supervisor.start("federation", self._client.run)
            supervisor.start("federation-age", self._forget_old_view)

    def status(self) -> FederationStatus:
        age_s = self._client.age_s
        return FederationStatus(self._client.condition, self._client.peers, None if age_s is None else round(age_s, 1))

    def _contribution(self) -> Contribution | None:
        return self._source.feed.contribution(self._source.sizes) if self._latest.sequence else None

    def _learned(self, view: GlobalView | None) -> None:
        self._source.feed.learn(view, self._settings().federation.weight)

    async def _forget_old_view(self) -> None:
        """A cluster that has not answered for long does not decide here any more."""
        known = True  # the model may have been saved with one
        while True:
            await asyncio.sleep(1.0)
            if known and self._client.view is None:
                self._learned(None)
            known = self._client.view is not None
