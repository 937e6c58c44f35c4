"""Filter and prioritize: which of many nodes can take a Pod, and which is best; and why the others cannot.

They look at memory only, so they answer in time whatever the API server does. They can be wrong by the Pods that are
being bound: kube-scheduler asks for the next Pod before the last one is bound. It is decided at the binding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.gangs import gang_of
from carico_agent.extender.node_rules import NO_SUCH_NODE, NodeRules
from carico_agent.extender.nodes import NodeColumns, NodeState, PendingPod
from carico_agent.extender.policy import Policy
from carico_agent.extender.shortlist import best, has_preferences
from carico_agent.extender.waiting_pods import WaitingPods
from carico_agent.extender.wake_scheduler import RefusedPod
from carico_agent.extender.wire import filter_result, host_priorities, names_of
from carico_agent.lib.kube.client import Object
from carico_agent.lib.net.times import boottime_s


@dataclass(frozen=True, slots=True)
class Filtered:
    """What filter found."""

    answer: Object | bytes
    """ExtenderFilterResult, as JSON where only names travel."""
    pod: PendingPod
    refused: RefusedPod | None = None
    """None: some node was accepted, or nothing is known yet."""
    chosen: str = ""
    """The one node that was accepted, for a member of a gang."""


class Candidates:
    """Answers from what the watches know. `max_nodes`: that filter hands back, 0: all."""

    def __init__(
        self, cluster: Cluster, policy: Policy[Any], rules: NodeRules, pods: WaitingPods, max_nodes: int
    ) -> None:
        self._cluster, self._policy, self._rules, self._pods = cluster, policy, rules, pods
        self._max_nodes = max_nodes

    def filter(self, arguments: Object) -> Object | bytes:
        """ExtenderArgs → ExtenderFilterResult, as JSON where only names travel."""
        return self.judge(arguments).answer

    def judge(self, arguments: Object, note: str = "") -> Filtered:
        """The same, and whether every node was refused. `note` follows each reason."""
        if not self._cluster.synced:
            return Filtered({"Error": "carico extender: nodes and Pods are not known yet"}, PendingPod(""))
        names, pod = names_of(arguments), self._pod(arguments)
        verdicts, nodes = self._verdicts_of(names, pod)
        if note:
            verdicts = [why and f"{why}{note}" for why in verdicts]
        refused = RefusedPod(pod, names) if names and None not in verdicts else None
        chosen = ""
        if nodes is not None and refused is None and not pod.holds and gang_of(arguments.get("Pod") or {}):
            names, verdicts = self._shortlist(names, verdicts, pod, 1)
            chosen = names[verdicts.index(None)] if None in verdicts else ""
        answer = self._result(arguments, names, verdicts, pod, nodes is not None)
        return Filtered(answer, pod, refused, chosen)

    def _verdicts_of(self, names: list[str], pod: PendingPod) -> tuple[list[str | None], NodeColumns | None]:
        """Why each is refused, and the nodes if all of them exist."""
        nodes = self._known(names)
        verdicts = self._policy.refusals(nodes or self._present(names), pod, boottime_s())
        if nodes is None:
            verdicts = [
                why if name in self._cluster.nodes else NO_SUCH_NODE for name, why in zip(names, verdicts, strict=True)
            ]
        return verdicts, nodes

    def _result(
        self, arguments: Object, names: list[str], verdicts: list[str | None], pod: PendingPod, known: bool
    ) -> Object | bytes:
        """`known`: all of these nodes exist."""
        whole = arguments.get("Nodes")
        if whole and arguments.get("NodeNames") is None:  # not nodeCacheCapable: objects came, objects must go
            failed = {name: why for name, why in zip(names, verdicts, strict=True) if why is not None}
            items = [node for node in whole.get("items") or () if node["metadata"]["name"] not in failed]
            return {"Nodes": {**whole, "items": items}, "FailedNodes": failed, "Error": ""}
        if known and not has_preferences(arguments.get("Pod") or {}):
            names, verdicts = self._shortlist(names, verdicts, pod, self._max_nodes)
        return filter_result(names, verdicts, plain=known)

    def _shortlist(
        self, names: list[str], verdicts: list[str | None], pod: PendingPod, most: int
    ) -> tuple[list[str], list[str | None]]:
        """Without the nodes that have room, but less than `most` others; 0: all."""
        if not most or verdicts.count(None) <= most:
            return names, verdicts
        passed = [name for name, why in zip(names, verdicts, strict=True) if why is None]
        scores = self._policy.scores(self._cluster.table.of(passed), pod, boottime_s())
        kept = best(passed, scores, most)
        both = [(name, why) for name, why in zip(names, verdicts, strict=True) if why is not None or name in kept]
        return [name for name, _ in both], [why for _, why in both]

    def prioritize(self, arguments: Object) -> bytes:
        """ExtenderArgs → HostPriorityList, as JSON."""
        names, pod = names_of(arguments), self._pod(arguments)
        nodes = self._known(names)
        scores = self._policy.scores(nodes or self._present(names), pod, boottime_s())
        return host_priorities(names, scores, plain=nodes is not None)

    def why(self, uid: str) -> dict[str, str | None] | None:
        """Why each node would refuse this Pod now; None: we were not asked about it, or long ago."""
        pod = self._pods.get(uid)
        return None if pod is None else self._verdicts(pod)

    def why_pod(self, pod: Object) -> dict[str, str | None]:
        """The same for a Pod object."""
        return self._verdicts(self._pods.remember(pod))

    def _verdicts(self, pod: PendingPod) -> dict[str, str | None]:
        nodes = self._cluster.table.all()
        names = nodes.names()
        found = zip(names, self._policy.refusals(nodes, pod, boottime_s()), strict=True)
        return {name: why or self._rules.by_resource(self._cluster.nodes[name], pod) for name, why in found}

    def _pod(self, arguments: Object) -> PendingPod:
        return self._pods.remember(arguments.get("Pod") or {})

    def _known(self, names: Sequence[str]) -> NodeColumns | None:
        """None if one of them does not exist (deleted, or new): rare, so that may take longer."""
        try:
            return self._cluster.table.of(names)
        except KeyError:
            return None

    def _present(self, names: Sequence[str]) -> NodeColumns:
        """These nodes; one that does not exist is one that has published nothing."""
        return NodeColumns.of([self._cluster.nodes.get(name) or NodeState(name) for name in names])
