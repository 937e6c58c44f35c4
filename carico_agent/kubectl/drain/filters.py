"""Which nodes may take a Pod, for all nodes at once: each check says which nodes it refuses, and why.

The rules are those of `lib/kube/filters`; here they become masks over nodes, and amounts and volumes come in.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from carico_agent.kubectl.drain.facts import PlannedPod
from carico_agent.kubectl.drain.state import Mask, TrialCluster
from carico_agent.lib.kube.filters.neighbours import Neighbourhood, judge_places
from carico_agent.lib.kube.filters.pod_rules import CORDON, tolerated
from carico_agent.lib.kube.workloads import RESOURCES

Refusal = tuple[Mask, str]
Static = dict[str, tuple[Mask, list[Refusal]]]
"""By a Pod's signature: what labels and taints allow, which does not change while a plan is made."""


def allowed(situation: TrialCluster, pod: PlannedPod, known: Static) -> tuple[Mask, list[Refusal]]:
    """The nodes that may take it, and every refusal."""
    if pod.signature not in known:
        refusals = list(_static(situation, pod))
        known[pod.signature] = _left(situation, refusals), refusals
    fine, refusals = known[pod.signature]
    refusals, fine = list(refusals), fine.copy()
    for check in CHECKS:
        for refused, why in check(situation, pod, fine):
            refusals.append((refused & fine, why))
            fine &= ~refused
        if not fine.any():
            break
    return fine, refusals


def _left(situation: TrialCluster, refusals: list[Refusal]) -> Mask:
    fine = np.ones(len(situation.nodes), dtype=bool)
    for refused, _ in refusals:
        fine &= ~refused
    return fine


def _by_text(texts: Sequence[str]) -> Iterator[Refusal]:
    """One refusal for each distinct text; an empty one refuses nothing."""
    for text in sorted(set(texts) - {""}):
        yield np.array([one == text for one in texts], dtype=bool), text


def _static(situation: TrialCluster, pod: PlannedPod) -> Iterator[Refusal]:
    return _by_text([pod.rules.why_not(node.name, node.labels, node.taints, ()) for node in situation.nodes])


def _cordoned(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    if not tolerated(pod.rules.tolerations, CORDON):
        yield situation.cordoned, "is cordoned"


def _requests(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    pods = situation.column.get("pods")
    if pods is not None:
        count = np.array([len(one) for one in situation.pods])
        yield count + 1 > situation.allocatable[:, pods], "has no place for another Pod (maxPods)"
    if not situation.requests:
        return
    for name, amount in pod.requests.items():
        if name not in situation.column:
            yield np.ones(len(situation.nodes), dtype=bool), f"has no {name}"
            continue
        at = situation.column[name]
        yield situation.requested[:, at] + amount > situation.allocatable[:, at], f"has too little {name} by requests"


def _use(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    if situation.room is None or situation.use is None or (cost := situation.use.cost.get(pod.uid)) is None:
        return
    yield np.array(np.isneginf(situation.room).all(axis=1), dtype=bool), "publishes no valid room"
    with np.errstate(invalid="ignore"):
        short: Mask = np.array(situation.room + 1e-9 < cost, dtype=bool)
    for at, name in enumerate(RESOURCES):
        if cost[at] > 0:
            yield short[:, at], f"has too little {name} by use"


def _ports(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    if pod.rules.ports:
        taken = [
            pod.rules.collides(port for other in pods.values() for port in other.rules.ports) for pods in situation.pods
        ]
        yield np.array(taken, dtype=bool), "has its host port in use"


def _volumes(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    for claim in pod.claims:
        reachable = situation.volumes.get(f"{pod.namespace}/{claim}")
        if reachable is not None:
            yield ~reachable, f"cannot reach the volume of claim {claim}"


def neighbourhoods(situation: TrialCluster, pod: PlannedPod) -> list[Neighbourhood]:
    """Every node with its Pods, as this one sees them."""
    cordon = not tolerated(pod.rules.tolerations, CORDON)
    return [
        Neighbourhood(
            node.labels,
            [other.me for other in pods.values()],
            not pod.rules.mismatch(node.name, node.labels),
            not (pod.rules.untolerated(node.taints) or (cordoned and cordon)),
        )
        for node, pods, cordoned in zip(situation.nodes, situation.pods, situation.cordoned, strict=True)
    ]


def _neighbours(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    objectors = [(situation.nodes[at].labels, other.me) for at, other in situation.with_terms.values()]
    rules = pod.rules.neighbours
    if rules is None and not objectors:
        return
    places = neighbourhoods(situation, pod) if rules is not None else []
    why_not = judge_places(pod.me, rules, places, objectors)
    yield from _by_text([why_not(node.labels) for node in situation.nodes])


CHECKS = (_cordoned, _requests, _use, _ports, _volumes, _neighbours)
