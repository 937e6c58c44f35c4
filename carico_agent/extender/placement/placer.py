"""Takes a place for a Pod before it is bound, or says why there is none.

Where several may bind, and numbers fall meanwhile, one extender leads and places all Pods from its memory
(kube/placement_lease.py); the others ask it.
"""

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.extender_config import ExtenderConfig
from carico_agent.extender.node_rules import NodeRules
from carico_agent.extender.nodes import PendingPod
from carico_agent.extender.placement.leader_questions import Question
from carico_agent.extender.placement.placement import Placement
from carico_agent.extender.waiting_pods import WaitingPods
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.net.limits import Limits, Peer, RateLimiter
from carico_agent.lib.net.times import boottime_s

LOOK_AGAIN_S, MAX_LOOKS = 0.1, 4
"""For how long, and how often, a refusal is looked at again [s]. No other Pod waits meanwhile: kube-scheduler binds
beside its loop. One is refused seldom, since kube-scheduler counts places itself."""


class Placer:
    """Takes places, by the rules of this extender or as the leading one decides."""

    def __init__(
        self, cluster: Cluster, rules: NodeRules, pods: WaitingPods, config: ExtenderConfig, placement: Placement
    ) -> None:
        self._cluster, self._rules, self._pods = cluster, rules, pods
        self._replicas, self._warnings = placement.replicas, placement.warnings
        self._bound_within_s = config.bound_within_s
        self._rate = RateLimiter(Limits(0, config.admissions_per_s))
        self._max_nodes_per_pod = config.max_nodes_per_pod

    async def take(self, asked: Question, pod: PendingPod) -> str | None:
        """Take a place for `pod`; returns why there is none. Raises KubeError while no extender may give one."""
        replicas = self._replicas
        if replicas is None:
            return await self._take_soon(asked, pod)
        if replicas.placed.another_leads:
            why = await replicas.questions.ask(asked)
            self._note(asked, why)
            if why is None:
                self._hold(pod, asked.node)
            return why
        return await self._take_soon(asked, pod)

    def give_back(self, uid: str, node: str) -> None:
        """The Pod is not bound there, for sure."""
        self._cluster.release(uid)
        if self._replicas is not None:
            self._replicas.placed.remove(node, uid)

    def must_see(self) -> None:
        """Raises KubeError while bindings of other schedulers are unknown."""
        if not self._cluster.synced:
            raise KubeError("nodes and Pods are not known yet")
        if self._cluster.blind_s() > self._bound_within_s / 2:
            raise KubeError("the watch of Pods is interrupted, so bindings of other schedulers are unknown")

    def expire(self) -> None:
        """What ends by time. Called ten times a second."""
        self._cluster.expire(boottime_s())
        if self._replicas is not None:
            self._replicas.placed.expire()

    def refused_lately(self, uid: str, node: str) -> bool:
        """Whether our bind has refused this Pod there: kube-scheduler may bind it all the same."""
        return self._warnings.refused_lately(uid, node)

    def _note(self, asked: Question, why: str | None) -> None:
        if why is None:
            self._warnings.placed(asked.uid, asked.node)
        elif asked.verb == "bind":
            self._warnings.refused(asked.uid, asked.node)

    async def decide(self, asked: Question) -> str | None:
        """As the leader, for another extender."""
        self.must_see()
        return await self._take_soon(asked, await self._pods.find(asked.namespace, asked.name, asked.uid))

    async def _take_soon(self, asked: Question, pod: PendingPod) -> str | None:
        """The client may have seen a rise before we do: a refusal for want of room is looked at again when there is
        news. A refusal of too many questions is final."""
        if too_many := self._too_many(asked, pod):
            return too_many
        why, end_s = self._take_here(asked, pod), boottime_s() + LOOK_AGAIN_S
        for _ in range(MAX_LOOKS):
            if why is None or not await self._cluster.news(end_s - boottime_s()):
                break
            why = self._take_here(asked, pod)
        self._note(asked, why)
        return why

    def _too_many(self, asked: Question, pod: PendingPod) -> str:
        """A Pod that was placed takes a place of its node for a while, and the webhook cannot always know which client
        asks for that: so not too many Pods of a node at once, and not too many nodes for a Pod. One Pod and 200
        questions made every node of a cluster full."""
        if asked.verb == "bind":
            return ""
        if wait_s := self._rate.request(Peer(asked.node), boottime_s()):
            return f"too many Pods at once; try again in {wait_s:.1f} s"
        placed = None if self._replicas is None else self._replicas.placed
        if placed is not None and (nodes := placed.elsewhere(pod.uid, asked.node)) >= self._max_nodes_per_pod:
            return f"the Pod may be on its way to {nodes} other nodes; try again in {self._bound_within_s:g} s"
        return ""

    def _take_here(self, asked: Question, pod: PendingPod) -> str | None:
        """Checking and taking are one step, with nothing waited for in between."""
        placed = None if self._replicas is None else self._replicas.placed
        if placed is not None and (why := placed.why_not()):
            raise KubeError(why)
        node, binds = asked.node, asked.verb == "bind"
        judged = binds or self.refused_lately(asked.uid, node)  # then kube-scheduler ignores what bind said
        rule = self._rules.by_policy if judged else self._rules.by_resource
        why = self._rules.check(node, pod, rule, {} if placed is None else placed.on_the_way(node))
        if why is None and placed is not None:
            why = placed.add(node, pod)
        if why is None:
            self._hold(pod, node)
        return why

    def _hold(self, pod: PendingPod, node: str) -> None:
        self._cluster.assume(pod, node, boottime_s() + self._bound_within_s)
