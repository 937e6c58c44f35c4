"""One cluster to move to: its clients, what is there, and whether it answers."""

import asyncio
import time
from dataclasses import dataclass, field, replace

from carico_agent.burst.objects import CopyJob
from carico_agent.burst.steps import Route
from carico_agent.lib.kube.access import Access
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.health import Health

NOWHERE = Access("")
"""Of a cluster that does not exist yet."""

Key = tuple[str, str]
"""Namespace and name of a Job at home."""


@dataclass
class Target:
    """One cluster to move to: its client, what is there, and how it answers."""

    route: Route
    client: KubeClient
    prober: KubeClient
    reader: KubeClient | None = None
    """For logs: a kubelet that does not answer must not make the client of the moves pause."""
    copies: dict[Key, CopyJob] = field(default_factory=dict)
    health: Health = field(default_factory=lambda: Health("target"))
    silent_since_s: float | None = None
    """Since when it does not answer (monotonic)."""
    known: bool = False
    """It has answered once, so it is known how it holds Jobs; before that nothing is done there."""
    exists: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.route.to

    def use(self, access: Access) -> None:
        """Another kubeconfig. Until the probe has asked which cluster it leads to, nothing is done there."""
        for client in (self.client, self.prober, self.reader):
            if client is not None:
                client.use(access)
        self.known, self.silent_since_s = False, None
        self.route = replace(self.route, cluster="")
        self.exists.clear()

    def forget(self) -> None:
        """The cluster is proven gone: nothing of what was seen there counts any more."""
        self.use(NOWHERE)
        self.copies.clear()


def suspends(version: Object) -> bool:
    """Whether a server of this /version holds Jobs by `suspend`: from 1.22 on, where it is no longer alpha.

    >>> suspends({"major": "1", "minor": "22+"}), suspends({"major": "1", "minor": "20"})
    (True, False)
    """
    digits = "".join(c for c in str(version.get("minor", "")) if c.isdigit())
    return (str(version.get("major")), int(digits or 0)) >= ("1", 22)


async def identity(client: KubeClient) -> str:
    """Which cluster this is: the UID of its kube-system namespace, which lives as long as the cluster."""
    return str((await client.get("/api/v1/namespaces/kube-system"))["metadata"]["uid"])


async def probe(target: Target, period_s: float = 3.0) -> None:
    """Ask a target every few seconds whether it is there, so that `status` knows within 10 s that it is not.

    With a client of its own: the other one pauses when the target does not answer.
    """
    while True:
        generation = target.prober.generation
        try:
            version = await target.prober.get("/version")
            by_suspend = replace(target.route.suspends, target=suspends(version))
            cluster = await identity(target.prober)
            if generation != target.prober.generation:
                continue  # the two answers may be of two clusters
            target.route = replace(target.route, suspends=by_suspend, cluster=cluster)
            target.silent_since_s, target.known = None, True
            target.health.good("probe")
        except KubeError as error:
            target.health.bad("probe", error)
            if target.silent_since_s is None:
                target.silent_since_s = time.monotonic()
        asked_s = time.monotonic()
        while time.monotonic() < asked_s + period_s and generation == target.prober.generation:
            await asyncio.sleep(min(0.2, period_s))
