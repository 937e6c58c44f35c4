"""Which nodes may take a Pod: kube-scheduler's filters, one function each. Each says which nodes it refuses, and why.

Source: pkg/scheduler/framework/plugins of Kubernetes 1.36. Not covered: claims of DRA, limits on attached volumes,
volumes that are not bound yet, and preemption.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from carico_agent.kubectl.drain.facts import PlannedNode, PlannedPod, Term, ports_collide
from carico_agent.kubectl.drain.selectors import (
    UNSCHEDULABLE,
    is_everything,
    node_matches,
    selects,
    tolerates,
)
from carico_agent.kubectl.drain.state import Mask, TrialCluster
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


def _static(situation: TrialCluster, pod: PlannedPod) -> Iterator[Refusal]:
    nodes = situation.nodes
    yield (
        np.array([not node_matches(pod.spec, node.name, node.labels) for node in nodes], dtype=bool),
        "does not match its node selector or node affinity",
    )
    tolerations = pod.spec.get("tolerations") or ()
    texts = [_untolerated(node, tolerations) for node in nodes]
    for text in sorted({text for text in texts if text}):
        yield np.array([one == text for one in texts], dtype=bool), f"has a taint that it does not tolerate: {text}"


def _untolerated(node: PlannedNode, tolerations: Any) -> str:
    for taint in node.taints:
        if taint.get("key") == UNSCHEDULABLE["key"]:
            continue  # a cordoned node has it; `_cordoned` speaks of that
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"{taint.get('key')}{value}:{taint['effect']}"
    return ""


def _cordoned(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    if not tolerates(pod.spec.get("tolerations") or (), UNSCHEDULABLE):
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
    if pod.ports:
        taken = [
            any(ports_collide(mine, port) for other in pods.values() for port in other.ports for mine in pod.ports)
            for pods in situation.pods
        ]
        yield np.array(taken, dtype=bool), "has its host port in use"


def _volumes(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    for claim in pod.claims:
        reachable = situation.volumes.get(f"{pod.namespace}/{claim}")
        if reachable is not None:
            yield ~reachable, f"cannot reach the volume of claim {claim}"


# ---- topology spread


def merged_selector(constraint: Mapping[str, Any], labels: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Its selector, with what matchLabelKeys adds of the Pod's own labels."""
    selector: Mapping[str, Any] | None = constraint.get("labelSelector")
    own = {key: labels[key] for key in constraint.get("matchLabelKeys") or () if key in labels}
    if selector is None or not own:
        return selector
    return {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **own}}


def matching(situation: TrialCluster, selector: Mapping[str, Any] | None, namespace: str) -> list[int]:
    """Pods that a spread constraint counts on each node."""
    if is_everything(selector):
        return [0] * len(situation.nodes)
    return [
        sum(not pod.leaving and pod.namespace == namespace and selects(selector, pod.labels) for pod in pods.values())
        for pods in situation.pods
    ]


def counted_nodes(situation: TrialCluster, pod: PlannedPod, constraint: Mapping[str, Any]) -> list[bool]:
    """Nodes that count for a constraint (nodeAffinityPolicy, nodeTaintsPolicy)."""
    honor_affinity = (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor"
    honor_taints = (constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor"
    tolerations = pod.spec.get("tolerations") or ()

    def counts(at: int, node: PlannedNode) -> bool:
        if honor_affinity and not node_matches(pod.spec, node.name, node.labels):
            return False
        barred = bool(_untolerated(node, tolerations)) or (
            bool(situation.cordoned[at]) and not tolerates(tolerations, UNSCHEDULABLE)
        )
        return not (honor_taints and barred)

    return [counts(at, node) for at, node in enumerate(situation.nodes)]


def _spread(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    hard = [
        one for one in pod.spec.get("topologySpreadConstraints") or () if one["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    if not hard:
        return
    has_all = [all(one["topologyKey"] in node.labels for one in hard) for node in situation.nodes]
    for one in hard:
        selector, domains = merged_selector(one, pod.labels), situation.domains(one["topologyKey"])
        here, counts = matching(situation, selector, pod.namespace), counted_nodes(situation, pod, one)
        found: dict[str | None, int] = {}
        for at, domain in enumerate(domains):
            if has_all[at] and counts[at]:
                found[domain] = found.get(domain, 0) + here[at]
        least = min(found.values(), default=2**31)
        if len(found) < int(one.get("minDomains") or 1):
            least = 0
        own = int(selects(selector, pod.labels))
        yield (
            np.array([d is None or found.get(d, 0) + own - least > one["maxSkew"] for d in domains], dtype=bool),
            f"would spread unevenly over {one['topologyKey']}",
        )


# ---- affinity between Pods


def term_matches(situation: TrialCluster, term: Term, of: PlannedPod, pod: PlannedPod) -> bool:
    """Whether a term of the Pod `of` speaks of `pod`."""
    names, by_labels = term.get("namespaces") or (), term.get("namespaceSelector")
    if not names and by_labels is None:
        in_namespace = pod.namespace == of.namespace
    else:
        in_namespace = pod.namespace in names or selects(by_labels, situation.namespaces.get(pod.namespace, {}))
    return in_namespace and selects(term.get("labelSelector"), pod.labels)


def _anti_of_others(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    """Pods that are there and do not want this one beside them."""
    barred: set[tuple[str, str]] = set()
    for at, other in situation.with_terms.values():
        for term in other.terms.get("anti", ()):
            value = situation.nodes[at].labels.get(term["topologyKey"])
            if value is not None and term_matches(situation, term, other, pod):
                barred.add((term["topologyKey"], value))
    if barred:
        refused = [any(node.labels.get(key) == value for key, value in barred) for node in situation.nodes]
        yield np.array(refused, dtype=bool), "has a Pod whose anti-affinity refuses it"


def _domains_with(situation: TrialCluster, term: Term, fits: Callable[[PlannedPod], bool]) -> set[str]:
    """Values of the term's topology in which a Pod is that fits."""
    return {
        node.labels[term["topologyKey"]]
        for node, pods in zip(situation.nodes, situation.pods, strict=True)
        if term["topologyKey"] in node.labels and any(map(fits, pods.values()))
    }


def _own_anti(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    for term in pod.terms.get("anti", ()):

        def beside(other: PlannedPod, term: Term = term) -> bool:
            return term_matches(situation, term, pod, other)

        found = _domains_with(situation, term, beside)
        refused = [domain in found for domain in situation.domains(term["topologyKey"])]
        yield np.array(refused, dtype=bool), "has a Pod that its anti-affinity refuses"


def _own_affinity(situation: TrialCluster, pod: PlannedPod, fine: Mask) -> Iterator[Refusal]:
    """A Pod beside it must match all terms at once; the first of a group may go anywhere if it matches itself."""
    terms = pod.terms.get("affinity", ())
    if not terms:
        return

    def beside(other: PlannedPod) -> bool:
        return all(term_matches(situation, term, pod, other) for term in terms)

    found = [_domains_with(situation, term, beside) for term in terms]
    first = not any(found) and beside(pod)
    for term, domains in zip(terms, found, strict=True):
        refused = [d is None or not (first or d in domains) for d in situation.domains(term["topologyKey"])]
        yield np.array(refused, dtype=bool), "has no Pod beside it that its affinity asks for"


CHECKS = (_cordoned, _requests, _use, _ports, _volumes, _spread, _anti_of_others, _own_anti, _own_affinity)
