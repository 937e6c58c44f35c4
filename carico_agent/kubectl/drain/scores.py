"""Which of the nodes that may take a Pod kube-scheduler chooses: the scores of its default profile, in its integers.

Source: pkg/scheduler/framework/plugins of Kubernetes 1.36, weights of apis/config/v1/default_plugins.go. Not covered:
images that are on a node already, and the sample that kube-scheduler takes of more than 100 nodes. Equal scores are
drawn at random, there and here.
"""

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np

from carico_agent.kubectl.drain.facts import SPREAD_OWNERS, PlannedPod
from carico_agent.kubectl.drain.filters import counted_nodes, matching, merged_selector, term_matches
from carico_agent.kubectl.drain.selectors import node_term, tolerates
from carico_agent.kubectl.drain.state import SCORED, Ints, TrialCluster

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
    soft = [one for one in pod.spec.get("tolerations") or () if one.get("effect") in (None, "", "PreferNoSchedule")]
    counts = [
        sum(
            taint.get("effect") == "PreferNoSchedule" and not tolerates(soft, taint)
            for taint in situation.nodes[at].taints
        )
        for at in rows
    ]
    return _normalised(np.array(counts, dtype=np.int64), reverse=True)


def _node_affinity(situation: TrialCluster, pod: PlannedPod, rows: Ints) -> Ints:
    rules = ((pod.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    ) or ()
    sums = [sum(one["weight"] for one in rules if _prefers(one["preference"], situation, at)) for at in rows]
    return _normalised(np.array(sums, dtype=np.int64), reverse=False)


def _prefers(term: Mapping[str, Any], situation: TrialCluster, at: int) -> bool:
    return node_term(term, situation.nodes[at].name, situation.nodes[at].labels)


# ---- spread


def _spread(situation: TrialCluster, pod: PlannedPod, rows: Ints) -> Ints:
    own = pod.spec.get("topologySpreadConstraints") or ()
    if own:
        soft = [one for one in own if one["whenUnsatisfiable"] == "ScheduleAnyway"]
        counts = [matching(situation, merged_selector(one, pod.labels), pod.namespace) for one in soft]
    else:
        soft = [{"topologyKey": key, "maxSkew": skew} for key, skew in DEFAULT_SPREAD]
        counts = [_siblings(situation, pod)] * 2
        if pod.owner[0] not in SPREAD_OWNERS:
            return np.zeros(len(rows), dtype=np.int64)
    if not soft:
        return np.zeros(len(rows), dtype=np.int64)
    labels = [situation.nodes[at].labels for at in rows]
    ignored = np.array([bool(own) and any(one["topologyKey"] not in have for one in soft) for have in labels])
    total = np.zeros(len(rows))
    for one, count in zip(soft, counts, strict=True):
        total += _spread_over(situation, pod, rows, one, count, ignored, bool(own), soft)
    # Go's math.Round rounds halves away from zero; scores are never negative.
    found = np.floor(total + 0.5).astype(np.int64)
    valid = found[~ignored]
    highest, lowest = int(valid.max(initial=0)), int(valid.min(initial=2**62))
    made = np.full_like(found, TOP) if not highest else TOP * (highest + lowest - found) // max(highest, 1)
    return np.where(ignored, 0, made)


def _siblings(situation: TrialCluster, pod: PlannedPod) -> list[int]:
    return [sum(not o.leaving and o.owner == pod.owner for o in pods.values()) for pods in situation.pods]


def _spread_over(
    situation: TrialCluster,
    pod: PlannedPod,
    rows: Ints,
    constraint: Mapping[str, Any],
    here: list[int],
    ignored: np.ndarray[Any, Any],
    own: bool,
    soft: list[Any],
) -> np.ndarray[Any, Any]:
    """One constraint: Pods in the node's domain, weighed by how many domains there are."""
    key, domains = constraint["topologyKey"], situation.domains(constraint["topologyKey"])
    candidates = {domains[at] for at, out in zip(rows, ignored, strict=True) if not out}
    size = int((~ignored).sum()) if key == HOSTNAME else len(candidates)
    weight = log(size + 2)
    if key == HOSTNAME:
        return np.array([0.0 if domains[at] is None else here[at] * weight + constraint["maxSkew"] - 1 for at in rows])
    found = dict.fromkeys(candidates, 0)
    counts = counted_nodes(situation, pod, constraint)
    for at, domain in enumerate(domains):
        whole = not own or all(one["topologyKey"] in situation.nodes[at].labels for one in soft)
        if whole and counts[at] and domain in found:
            found[domain] += here[at]
    return np.array(
        [0.0 if domains[at] is None else found.get(domains[at], 0) * weight + constraint["maxSkew"] - 1 for at in rows]
    )


# ---- affinity between Pods


def _pod_affinity(situation: TrialCluster, pod: PlannedPod, rows: Ints) -> Ints:
    found: dict[tuple[str, str], int] = {}

    def add(term: Mapping[str, Any], of: PlannedPod, other: PlannedPod, at: int, weight: int) -> None:
        value = situation.nodes[at].labels.get(term["topologyKey"])
        if value is not None and term_matches(situation, term, of, other):
            found[term["topologyKey"], value] = found.get((term["topologyKey"], value), 0) + weight

    for at, other in situation.with_terms.values():
        for term in other.terms.get("affinity", ()):
            add(term, other, pod, at, 1)
        for kind, sign in (("prefer_affinity", 1), ("prefer_anti", -1)):
            for term in other.terms.get(kind, ()):
                add(term, other, pod, at, sign * term["weight"])
    for kind, sign in (("prefer_affinity", 1), ("prefer_anti", -1)):
        for term in pod.terms.get(kind, ()):
            for at, pods in enumerate(situation.pods):
                for other in pods.values():
                    add(term, pod, other, at, sign * term["weight"])
    if not found:
        return np.zeros(len(rows), dtype=np.int64)
    sums = np.array(
        [sum(w for (key, value), w in found.items() if situation.nodes[at].labels.get(key) == value) for at in rows],
        dtype=np.int64,
    )
    span = int(sums.max() - sums.min())
    return np.asarray(TOP * (sums - sums.min()) / span if span else np.zeros(len(rows)), dtype=np.int64)
