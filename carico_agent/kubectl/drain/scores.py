"""Which of the nodes that may take a Pod kube-scheduler chooses: the scores of its default profile, in its integers.

Source: pkg/scheduler/framework/plugins of Kubernetes 1.36, weights of apis/config/v1/default_plugins.go. Not covered:
images that are on a node already, and the sample that kube-scheduler takes of more than 100 nodes. Equal scores are
drawn at random, there and here.
"""

from math import log
from typing import Any

import numpy as np

from carico_agent.kubectl.drain.facts import SPREAD_OWNERS, PlannedPod
from carico_agent.kubectl.drain.filters import neighbourhoods
from carico_agent.kubectl.drain.state import SCORED, Ints, TrialCluster
from carico_agent.lib.kube.filters.neighbours import AffinityTerm, Neighbourhood, Spread
from carico_agent.lib.kube.filters.pod_rules import tolerated
from carico_agent.lib.kube.filters.selectors import node_term

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DEFAULT_SPREAD = ((HOSTNAME, 3), (ZONE, 5))
"""Topology and maxSkew of Pods of a controller that say nothing themselves."""
TOP = 100


def scores(situation: TrialCluster, pod: PlannedPod, rows: Ints) -> Ints:
    """Of the nodes in `rows`."""
    total = _least_allocated(situation, pod, rows) + _balanced(situation, pod, rows)
    total += 3 * _taints(situation, pod, rows) + 2 * _node_affinity(situation, pod, rows)
    total += 2 * _spread(situation, pod, rows) + 2 * _pod_affinity(situation, pod, rows)
    return total


def _columns(situation: TrialCluster) -> Ints:
    return np.array([situation.column[name] for name in SCORED if name in situation.column], dtype=np.int64)


def _least_allocated(situation: TrialCluster, pod: PlannedPod, rows: Ints) -> Ints:
    have = situation.allocatable[np.ix_(rows, _columns(situation))]
    asked = situation.scored[rows][:, : have.shape[1]] + np.array(pod.scored)[: have.shape[1]]
    free = np.where(have > 0, np.maximum(have - asked, 0) * TOP // np.maximum(have, 1), 0)
    found: Ints = free.sum(axis=1) // np.maximum((have > 0).sum(axis=1), 1)
    return found


def _balanced(situation: TrialCluster, pod: PlannedPod, rows: Ints) -> Ints:
    """How much more even the node becomes by this Pod; a Pod that requests nothing changes nothing."""
    asked = np.array([pod.requests.get(name, 0) for name in SCORED])
    if not asked.any():
        return np.zeros(len(rows), dtype=np.int64)
    columns = _columns(situation)
    have, held = situation.allocatable[np.ix_(rows, columns)], situation.requested[np.ix_(rows, columns)]
    change = _evenness(held + asked[: len(columns)], have) - _evenness(held, have)
    # Go divides towards zero, numpy downwards.
    return np.asarray(TOP // 2 + np.trunc((TOP // 2 + change) / 2), dtype=np.int64)


def _evenness(held: Ints, have: Ints) -> Ints:
    shares = np.minimum(held / np.maximum(have, 1), 1.0)
    deviation = np.abs(shares[:, 0] - shares[:, 1]) / 2 if shares.shape[1] == 2 else np.zeros(len(shares))
    return np.asarray((1 - deviation) * TOP, dtype=np.int64)


def _normalised(found: Ints, reverse: bool) -> Ints:
    highest = found.max(initial=0)
    if not highest:
        return np.full_like(found, TOP if reverse else 0)
    scaled = TOP * found // highest
    return np.asarray(TOP - scaled if reverse else scaled, dtype=np.int64)


def _taints(situation: TrialCluster, pod: PlannedPod, rows: Ints) -> Ints:
    soft = [one for one in pod.rules.tolerations if one.get("effect") in (None, "", "PreferNoSchedule")]
    counts = [
        sum(taint.effect == "PreferNoSchedule" and not tolerated(soft, taint) for taint in situation.nodes[at].taints)
        for at in rows
    ]
    return _normalised(np.array(counts, dtype=np.int64), reverse=True)


def _node_affinity(situation: TrialCluster, pod: PlannedPod, rows: Ints) -> Ints:
    nodes = [situation.nodes[at] for at in rows]
    sums = [
        sum(weight for weight, term in pod.prefers.nodes if node_term(term, node.name, node.labels)) for node in nodes
    ]
    return _normalised(np.array(sums, dtype=np.int64), reverse=False)


# ---- spread


def _spread(situation: TrialCluster, pod: PlannedPod, rows: Ints) -> Ints:
    own = not pod.prefers.default_spread
    soft = pod.prefers.spreads if own else tuple(Spread(key, skew, 1, None) for key, skew in DEFAULT_SPREAD)
    if not soft or (not own and pod.owner[0] not in SPREAD_OWNERS):
        return np.zeros(len(rows), dtype=np.int64)
    keys = [one.key for one in soft] if own else []
    ignored = np.array([any(key not in situation.nodes[at].labels for key in keys) for at in rows])
    places, total = neighbourhoods(situation, pod), np.zeros(len(rows))
    siblings = [] if own else _siblings(situation, pod)
    for one in soft:
        here = siblings or [one.matching(pod.me, place.residents) for place in places]
        total += _spread_over(situation, rows, one, here, ignored, places, keys)
    # Go's math.Round rounds halves away from zero; scores are never negative.
    found = np.floor(total + 0.5).astype(np.int64)
    valid = found[~ignored]
    highest, lowest = int(valid.max(initial=0)), int(valid.min(initial=2**62))
    made = np.full_like(found, TOP) if not highest else TOP * (highest + lowest - found) // max(highest, 1)
    return np.where(ignored, 0, made)


def _siblings(situation: TrialCluster, pod: PlannedPod) -> list[int]:
    return [sum(o.owner == pod.owner and not o.leaving for o in pods.values()) for pods in situation.pods]


def _spread_over(
    situation: TrialCluster,
    rows: Ints,
    spread: Spread,
    here: list[int],
    ignored: np.ndarray[Any, Any],
    places: list[Neighbourhood],
    keys: list[str],
) -> np.ndarray[Any, Any]:
    """One constraint: Pods in the node's domain, weighed by how many domains there are. Nodes without one of `keys` do
    not count."""
    key, domains = spread.key, situation.domains(spread.key)
    candidates = {domains[at] for at, out in zip(rows, ignored, strict=True) if not out}
    size = int((~ignored).sum()) if key == HOSTNAME else len(candidates)
    weight = log(size + 2)
    if key == HOSTNAME:
        return np.array([0.0 if domains[at] is None else here[at] * weight + spread.max_skew - 1 for at in rows])
    found = dict.fromkeys(candidates, 0)
    for at, domain in enumerate(domains):
        whole = all(key in situation.nodes[at].labels for key in keys)
        if whole and places[at].counts_for(spread) and domain in found:
            found[domain] += here[at]
    return np.array(
        [0.0 if domains[at] is None else found.get(domains[at], 0) * weight + spread.max_skew - 1 for at in rows]
    )


# ---- affinity between Pods


def _pod_affinity(situation: TrialCluster, pod: PlannedPod, rows: Ints) -> Ints:
    found: dict[tuple[str, str], int] = {}

    def add(term: AffinityTerm, other: PlannedPod, at: int, weight: int) -> None:
        value = situation.nodes[at].labels.get(term.key)
        if value is not None and term.matches(other.me):
            found[term.key, value] = found.get((term.key, value), 0) + weight

    for at, other in situation.with_terms.values():
        for term in other.affinity:
            add(term, pod, at, 1)
        for weight, term in other.prefers.pods:
            add(term, pod, at, weight)
    for weight, term in pod.prefers.pods:
        for at, pods in enumerate(situation.pods):
            for other in pods.values():
                add(term, other, at, weight)
    if not found:
        return np.zeros(len(rows), dtype=np.int64)
    sums = np.array(
        [sum(w for (key, value), w in found.items() if situation.nodes[at].labels.get(key) == value) for at in rows],
        dtype=np.int64,
    )
    span = int(sums.max() - sums.min())
    return np.asarray(TOP * (sums - sums.min()) / span if span else np.zeros(len(rows)), dtype=np.int64)
