"""One extender, put together: what kube-scheduler and the API server ask, and by which part it is answered. No HTTP in
here.

| asked | part | decides |
|---|---|---|
| filter, prioritize, why | `candidates`, filter by way of `second_look` | from memory, about many nodes |
| bind | `binder` | takes a place (`placement/placer.py`), then makes the Binding |
| a binding by another scheduler | `webhook` | takes a place in the same way |
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from carico_agent.extender.admission import AdmissionWebhook
from carico_agent.extender.binder import Binder
from carico_agent.extender.candidates import Candidates
from carico_agent.extender.cluster import Cluster
from carico_agent.extender.extender_config import ExtenderConfig
from carico_agent.extender.node_rules import NodeRules
from carico_agent.extender.placement.placement import Placement
from carico_agent.extender.placement.placer import Placer
from carico_agent.extender.policy import Policy
from carico_agent.extender.second_look import SecondLook
from carico_agent.extender.waiting_pods import WaitingPods
from carico_agent.extender.wake_scheduler import WakeScheduler
from carico_agent.lib.kube.client import KubeClient

EXPIRE_EVERY_S = 0.1


class Extender:
    """Answers from what the watches of `cluster` know."""

    def __init__(
        self,
        client: KubeClient,
        cluster: Cluster,
        policy: Policy[Any],
        config: ExtenderConfig,
        placement: Placement | None = None,
    ) -> None:
        """`placement`: the one that `cluster` tells what its watches show; None: this extender places no Pods."""
        placement = placement or Placement(client, config)
        self.cluster, self.replicas, self.warnings = cluster, placement.replicas, placement.warnings
        pods = WaitingPods(client, cluster, config.resource)
        rules = NodeRules(cluster, policy, config.resource)
        self.candidates = Candidates(cluster, policy, rules, pods, config.max_nodes)
        self.wake = WakeScheduler(client, cluster, policy)
        self._placer = Placer(cluster, rules, pods, config, placement)
        self.second_look = SecondLook(cluster, self.candidates, self.wake, self.warnings)
        self.binder = Binder(client, cluster, pods, self._placer, config.bind_s)
        self.webhook = AdmissionWebhook(pods, self._placer, config.bind_s)

    def replica_tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """What runs beside the answers, by name: none if this extender is alone."""
        replicas = self.replicas
        if replicas is None:
            return {}
        questions = partial(replicas.questions.run, self._placer.decide)
        return {"leader": replicas.leader.run, "acknowledgements": replicas.placed.run, "questions": questions}

    async def expire_loop(self) -> None:
        """Until it is cancelled: what ends by time."""
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            self._placer.expire()
