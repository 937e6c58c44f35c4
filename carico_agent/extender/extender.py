"""One extender, put together: what kube-scheduler and the API server ask, and by which part it is answered. No HTTP in
here.

| asked | part | decides |
|---|---|---|
| filter, prioritize, why | `candidates`, filter by way of `second_look` | from memory, about many nodes |
| bind | `binder` | takes a place (`placement/placer.py`), then makes the Binding |
| a binding by somebody else | `webhook` | takes a place in the same way |
"""

import asyncio
from typing import Any

from carico_agent.extender.admission import AdmissionWebhook
from carico_agent.extender.binder import Binder
from carico_agent.extender.candidates import Candidates
from carico_agent.extender.cluster import Cluster
from carico_agent.extender.extender_config import ExtenderConfig
from carico_agent.extender.node_rules import NodeRules
from carico_agent.extender.placement.placer import Placer
from carico_agent.extender.placement.replicas import Replicas
from carico_agent.extender.policy import Policy
from carico_agent.extender.second_look import SecondLook
from carico_agent.extender.waiting_pods import WaitingPods
from carico_agent.extender.wake_scheduler import WakeScheduler
from carico_agent.lib.kube.client import KubeClient

EXPIRE_EVERY_S = 0.1


class Extender:
    """Answers from what the watches of `cluster` know."""

    def __init__(self, client: KubeClient, cluster: Cluster, policy: Policy[Any], config: ExtenderConfig) -> None:
        self.cluster = cluster
        pods = WaitingPods(client, cluster, config.resource)
        rules = NodeRules(cluster, policy, config.resource)
        self.candidates = Candidates(cluster, policy, rules, pods, config.max_nodes)
        self.wake = WakeScheduler(client, cluster, policy)
        self._placer = Placer(client, cluster, rules, pods, config)
        self.warnings = self._placer.warnings
        self.second_look = SecondLook(cluster, self.candidates, self.wake, self.warnings)
        self.binder = Binder(client, cluster, pods, self._placer, config.bind_s)
        self.webhook = AdmissionWebhook(pods, self._placer, config.bind_s)

    @property
    def replicas(self) -> Replicas | None:
        """This extender among the others; None: there are none."""
        return self._placer.replicas

    async def expire_loop(self) -> None:
        """For ever: what ends by time."""
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            self._placer.expire()
