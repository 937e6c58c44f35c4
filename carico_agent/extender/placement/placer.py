"""Takes a place for a Pod before it is bound, or says why there is none.

Where several may bind, and numbers fall meanwhile, one extender leads and places all Pods from its memory
(kube/placement_lease.py); the others ask it.
"""

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.extender_config import ExtenderConfig
from carico_agent.extender.node_rules import NodeRules
from carico_agent.extender.nodes import PendingPod
from carico_agent.extender.placement.asks import Question
from carico_agent.extender.placement.replicas import Replicas
from carico_agent.extender.waiting_pods import WaitingPods
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.net.limits import Limits, Peer, RateLimiter
from carico_agent.lib.net.times import boottime_s


class Placer:
    """`replicas` is None where there are no placement Leases: then this extender is alone."""

    def __init__(
        self, client: KubeClient, cluster: Cluster, rules: NodeRules, pods: WaitingPods, config: ExtenderConfig
    ) -> None:
        self._cluster, self._rules, self._pods = cluster, rules, pods
        self._bound_within_s = config.bound_within_s
        self._rate = RateLimiter(Limits(0, config.admissions_per_s))
        self._max_nodes_per_pod = config.max_nodes_per_pod
        self.replicas: Replicas | None = None
        if config.lease_namespace:
            self.replicas = Replicas(client, config.lease_namespace, config.bound_within_s, self._decide)
            cluster.on_lease = self.replicas.lease_seen

    async def take(self, asked: Question, pod: PendingPod) -> str | None:
        """Take a place for `pod`; returns why there is none. Raises KubeError while nobody may give one."""
        replicas = self.replicas
        if replicas is None:
            return self._take_here(asked, pod)
        if replicas.placed.another_leads:
            why = await replicas.asks.ask(asked)
            if why is None:
                self._hold(pod, asked.node)
            return why
        if why := replicas.placed.why_not():
            raise KubeError(why)
        return self._take_here(asked, pod)

    def give_back(self, uid: str, node: str) -> None:
        """The Pod is not bound there, for sure."""
        self._cluster.release(uid)
        if self.replicas is not None:
            self.replicas.placed.remove(node, uid)

    def must_see(self) -> None:
        """Raises KubeError while nobody can know what others bound."""
        if not self._cluster.synced:
            raise KubeError("nodes and Pods are not known yet")
        if self._cluster.blind_s() > self._bound_within_s / 2:
            raise KubeError("the watch of Pods is interrupted, so nobody knows what others bound")

    def expire(self) -> None:
        """What ends by time. Called ten times a second."""
        self._cluster.expire(boottime_s())
        if self.replicas is not None:
            self.replicas.placed.expire()

    async def _decide(self, asked: Question) -> str | None:
        """As the leader, for another extender."""
        assert self.replicas is not None
        self.must_see()
        pod = await self._pods.find(asked.namespace, asked.name, asked.uid)
        if why := self.replicas.placed.why_not():
            raise KubeError(why)
        return self._take_here(asked, pod)

    def _take_here(self, asked: Question, pod: PendingPod) -> str | None:
        """Checking and taking are one step, with nothing waited for in between. A Pod that was placed takes a place of
        its node for a while, and the webhook cannot always know who asks for that: so not too many Pods of a node at
        once, and not too many nodes for a Pod. One Pod and 200 questions made every node of a cluster full."""
        node, binds = asked.node, asked.verb == "bind"
        if not binds and (wait_s := self._rate.request(Peer(node), boottime_s())):
            return f"too many Pods at once; try again in {wait_s:.1f} s"
        placed = None if self.replicas is None else self.replicas.placed
        if not binds and placed is not None and (nodes := placed.elsewhere(pod.uid, node)) >= self._max_nodes_per_pod:
            return f"the Pod may be on its way to {nodes} other nodes; try again in {self._bound_within_s:g} s"
        rule = self._rules.by_policy if binds else self._rules.by_resource
        why = self._rules.check(node, pod, rule, {} if placed is None else placed.on_the_way(node))
        if why is None and placed is not None:
            why = placed.add(node, pod)
        if why is None:
            self._hold(pod, node)
        return why

    def _hold(self, pod: PendingPod, node: str) -> None:
        self._cluster.assume(pod, node, boottime_s() + self._bound_within_s)
