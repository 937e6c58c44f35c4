"""The extended resource of nodes whose agent is silent, lowered to what their Pods hold.

An extended resource has no TTL: kube-scheduler believes the last number of a killed agent without end. So the extender
that leads, which knows who is on the way, takes back what no Pod holds once an agent's heartbeats have expired, and
says so in an event on the Node. The agent writes its number again when it is back.

Careful, because a mistake closes a cluster: nothing is done while our own view may be wrong (a watch is closed or was a
minute ago, our clock is off), the node's Lease is read again before, and a few nodes are done at a time.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable

from carico_agent.extender.cluster import Cluster
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.clock import MAX_SKEW_S
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.placement_lease import PlacementLeases
from carico_agent.lib.net.times import boottime_s, rfc3339

log = logging.getLogger(__name__)

ROUND_S = 5.0
CALM_S = 60.0
"""After an interruption agents get this long to renew their Leases [s]."""
GRACE_S = 10.0
NODES_PER_ROUND = 10


class ExpiredNodes:
    """`run` works while `leads` says so."""

    def __init__(
        self, client: KubeClient, cluster: Cluster, resource: str, lease_namespace: str, leads: Callable[[], bool]
    ) -> None:
        self._client, self._cluster, self._resource, self._leads = client, cluster, resource, leads
        self._leases = PlacementLeases(client, lease_namespace)
        self._well_since_s = boottime_s()
        self._reported: set[str] = set()
        self._trouble = ""
        self.lowered = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(ROUND_S)
            try:
                await self.round(boottime_s())
                self._trouble = ""
            except KubeError as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("cannot lower the resource of nodes without heartbeats: %s", error)

    async def round(self, now_s: float) -> None:
        if not self._cluster.watches.open() or abs(self._client.clock_skew_s) > MAX_SKEW_S:
            self._well_since_s = now_s
        silent = self.silent(now_s)
        self._reported.intersection_update(silent)
        if now_s - self._well_since_s < CALM_S or not silent:
            return
        for name in silent[:NODES_PER_ROUND]:
            if self._leads():
                await self._lower(name)

    def silent(self, now_s: float) -> list[str]:
        """Nodes that have published, whose number has expired, and that offer more than is held."""
        return [
            name
            for name, state in self._cluster.nodes.items()
            if state.resource is not None
            and state.resource > state.held
            and state.ttl_s > 0
            and now_s - state.published_s > state.ttl_s + GRACE_S
        ]

    async def _lower(self, name: str) -> None:
        record = await self._leases.read(name)
        if record.renewed_s + record.ttl_s > time.time() or (state := self._cluster.nodes.get(name)) is None:
            return  # it is back, or gone
        offered, state.resource = state.resource, state.held  # from now on no Pod is placed
        amount = {self._resource: str(state.held)}
        body = {"status": {"capacity": amount, "allocatable": amount}}
        try:
            await self._client.patch(f"/api/v1/nodes/{name}/status", body)
        except KubeError:
            state.resource = offered
            raise
        self.lowered += 1
        if name not in self._reported:
            self._reported.add(name)
            log.info("%s: its agent is silent, %s lowered to %d", name, self._resource, state.held)
            text = f"no heartbeat of carico's agent: {self._resource} lowered from {offered} to {state.held}"
            await self._client.post("/api/v1/namespaces/default/events", event(name, text))


def event(node: str, text: str) -> Object:
    now = rfc3339(digits="seconds")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{node}.{secrets.token_hex(8)}", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "reason": "CaricoAgentSilent",
        "message": text,
        "type": "Warning",
        "source": {"component": "carico-extender"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
