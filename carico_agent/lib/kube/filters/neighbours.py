"""What kube-scheduler checks of a Pod against the other Pods: required affinity, anti-affinity and topology spread.

Pure. Preferred rules have the same form (`affinity_term`, `spread_of`); they decide between nodes that fit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from carico_agent.lib.kube.filters.selectors import Labels, Object, is_everything, selects

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MAX_NEIGHBOUR_RULES = 50
"""Rules about other Pods that one Pod may have here, and conditions in them: an object has room for thousands."""
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class Resident:
    """A Pod as others see it. `namespace_labels` are needed only for terms that select namespaces by label."""

    namespace: str
    labels: Labels
    anti: "tuple[AffinityTerm, ...]" = ()
    deleting: bool = False
    namespace_labels: Labels = field(default_factory=dict)


@dataclass(frozen=True)
class AffinityTerm:
    """Pods that the selector matches, in the named namespaces or those with such labels, within one topology domain."""

    key: str
    selector: Object | None
    namespaces: frozenset[str]
    by_labels: Object | None = None
    """Selects namespaces; None: only the named ones."""

    def matches(self, other: Resident) -> bool:
        """
        >>> near = AffinityTerm("zone", {}, frozenset(), {"matchLabels": {"team": "a"}})
        >>> [near.matches(Resident("x", {}, namespace_labels=labels)) for labels in ({"team": "a"}, {})]
        [True, False]
        """
        inside = other.namespace in self.namespaces or selects(self.by_labels, other.namespace_labels)
        return inside and selects(self.selector, other.labels)


@dataclass(frozen=True)
class Spread:
    """One topology spread constraint."""

    key: str
    max_skew: int
    min_domains: int
    selector: Object | None
    honors_affinity: bool = True
    honors_taints: bool = False

    def matching(self, me: Resident, others: Iterable[Resident]) -> int:
        """How many of the other Pods count for it. By an empty selector kube-scheduler counts none."""
        if is_everything(self.selector):
            return 0
        return sum(
            other.namespace == me.namespace and not other.deleting and selects(self.selector, other.labels)
            for other in others
        )


@dataclass(frozen=True)
class NeighbourRules:
    """What one Pod wants of the others, beside the anti-affinity that its `Resident` has."""

    affinity: tuple[AffinityTerm, ...] = ()
    spreads: tuple[Spread, ...] = ()


@dataclass(frozen=True)
class Neighbourhood:
    """A node with its Pods. `affinity_ok`, `taints_ok`: whether the Pod in question passes these rules there."""

    labels: Labels
    residents: Sequence[Resident]
    affinity_ok: bool = True
    taints_ok: bool = True

    def counts_for(self, spread: Spread) -> bool:
        """Whether the constraint considers this node (nodeAffinityPolicy, nodeTaintsPolicy)."""
        return (self.affinity_ok or not spread.honors_affinity) and (self.taints_ok or not spread.honors_taints)


def neighbour_rules(spec: Object, namespace: str, labels: Labels) -> NeighbourRules | None:
    """Of a Pod's spec; None where it does not look at others, or has too many rules to be judged."""
    if too_long(spec):
        return None
    near = _required(spec, "podAffinity", namespace)
    spreads = tuple(spread_of(one, labels) for one in spread_objects(spec, "DoNotSchedule"))
    return NeighbourRules(near, spreads) if near or spreads or anti_terms(spec, namespace) else None


def anti_terms(spec: Object, namespace: str) -> tuple[AffinityTerm, ...]:
    return _required(spec, "podAntiAffinity", namespace)


def resident_of(pod: Object, namespace: str = "") -> Resident:
    """Of a Pod object or a template; `namespace`: where its Pods are, if the object does not say."""
    meta = pod.get("metadata") or {}
    where = str(meta.get("namespace") or namespace)
    anti = anti_terms(pod.get("spec") or {}, where)
    return Resident(where, dict(meta.get("labels") or {}), anti, bool(meta.get("deletionTimestamp")))


def spread_objects(spec: Object, unsatisfiable: str) -> list[Object]:
    """Topology spread constraints with this `whenUnsatisfiable`."""
    found = spec.get("topologySpreadConstraints") or ()
    return [one for one in found if one.get("whenUnsatisfiable") == unsatisfiable]


def spread_of(one: Object, labels: Labels) -> Spread:
    """`labels`: the Pod's own, from which matchLabelKeys takes."""
    return Spread(
        str(one.get("topologyKey", "")),
        int(one.get("maxSkew") or 1),
        int(one.get("minDomains") or 1),
        _merged(one, labels),
        (one.get("nodeAffinityPolicy") or "Honor") == "Honor",
        (one.get("nodeTaintsPolicy") or "Ignore") == "Honor",
    )


def _merged(constraint: Object, labels: Labels) -> Object | None:
    """Its selector, with what matchLabelKeys adds of the Pod's own labels.

    >>> _merged({"labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["v", "w"]}, {"v": "2"})
    {'matchLabels': {'app': 'a', 'v': '2'}}
    """
    selector: Object | None = constraint.get("labelSelector")
    own = {key: labels[key] for key in constraint.get("matchLabelKeys") or () if key in labels}
    if selector is None or not own:
        return selector
    return {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **own}}


def too_long(spec: Object) -> bool:
    """Whether a Pod's rules about other Pods are more than are judged here, for every node and every Pod on it.

    >>> [too_long({"topologySpreadConstraints": [{}] * count}) for count in (1, MAX_NEIGHBOUR_RULES + 1)]
    [False, True]
    """
    affinity = spec.get("affinity") or {}
    rules = list(spec.get("topologySpreadConstraints") or ())
    for side in ("podAffinity", "podAntiAffinity"):
        rules += (affinity.get(side) or {}).get(REQUIRED) or ()
    conditions = [one for rule in rules for one in (rule.get("labelSelector") or {}).get("matchExpressions") or ()]
    values = sum(len(one.get("values") or ()) for one in conditions)
    return max(len(rules), len(conditions), values // 10) > MAX_NEIGHBOUR_RULES


def _required(spec: Object, side: str, namespace: str) -> tuple[AffinityTerm, ...]:
    if too_long(spec):
        return ()
    rules = (spec.get("affinity") or {}).get(side) or {}
    return tuple(affinity_term(one, namespace) for one in rules.get(REQUIRED) or ())


def affinity_term(term: Object, own: str) -> AffinityTerm:
    """`own`: the namespace of the Pod whose term it is, which counts when the term names none."""
    named, by_labels = frozenset(term.get("namespaces") or ()), term.get("namespaceSelector")
    if not named and by_labels is None:
        named = frozenset((own,))
    return AffinityTerm(str(term.get("topologyKey", "")), term.get("labelSelector"), named, by_labels)


def neighbours_unjudged(spec: Object) -> str:
    """What these rules ask that a template does not tell: labels of namespaces, labels that a Pod gets when it is
    created."""
    affinity: Mapping[str, Any] = spec.get("affinity") or {}
    terms = [
        term for side in ("podAffinity", "podAntiAffinity") for term in (affinity.get(side) or {}).get(REQUIRED) or ()
    ]
    if any(term.get("namespaceSelector") for term in terms):
        return "labels of namespaces (namespaceSelector)"
    rules = [*terms, *(spec.get("topologySpreadConstraints") or ())]
    if any(rule.get("matchLabelKeys") or rule.get("mismatchLabelKeys") for rule in rules):
        return "labels that its Pods get when they are created (matchLabelKeys)"
    return ""


Domain = tuple[str, str]
"""Key and value of a topology label."""
Objector = tuple[Labels, Resident]
"""A Pod with anti-affinity of its own, and the labels of its node."""


def judge_places(
    me: Resident, rules: NeighbourRules | None, places: Sequence[Neighbourhood], objectors: Iterable[Objector]
) -> Callable[[Labels], str]:
    """A function that says, from the labels of a node, why its Pods keep this one away, or nothing.

    All Pods are counted once, here. `places` may be empty for a Pod without rules: then only `objectors` count."""
    refused = {
        (term.key, labels[term.key])
        for labels, one in objectors
        for term in one.anti
        if term.key in labels and term.matches(me)
    }
    near = rules.affinity if rules else ()
    avoided = _domains_of(places, me.anti, lambda one, term: term.matches(one))
    friends = _domains_of(places, near, lambda one, _: all(term.matches(one) for term in near))
    alone = not friends and all(term.matches(me) for term in near)
    spreads = [(one, _counts(me, one, rules, places)) for one in rules.spreads] if rules else []

    def why_not(labels: Labels) -> str:
        if refused and not refused.isdisjoint(labels.items()):
            return "a Pod there does not want it near (anti-affinity)"
        if any((term.key, labels.get(term.key)) in avoided for term in me.anti):
            return "its anti-affinity keeps it from a Pod there"
        if any(term.key not in labels for term in near):
            return "its affinity wants a topology key that the node lacks"
        if near and not alone and any((term.key, labels[term.key]) not in friends for term in near):
            return "no Pod that its affinity wants is there"
        for spread, counts in spreads:
            if why := _too_skewed(me, spread, counts, labels):
                return why
        return ""

    return why_not


def _domains_of(
    places: Sequence[Neighbourhood],
    terms: tuple[AffinityTerm, ...],
    matches: Callable[[Resident, AffinityTerm], bool],
) -> set[Domain]:
    return {
        (term.key, place.labels[term.key])
        for term in terms
        for place in places
        if term.key in place.labels and any(matches(one, term) for one in place.residents)
    }


def _counts(me: Resident, spread: Spread, rules: NeighbourRules, places: Sequence[Neighbourhood]) -> dict[str, int]:
    """Matching Pods by domain, over the nodes that count."""
    keys = [one.key for one in rules.spreads]
    counts: dict[str, int] = {}
    for place in places:
        if all(key in place.labels for key in keys) and place.counts_for(spread):
            domain = place.labels[spread.key]
            counts[domain] = counts.get(domain, 0) + spread.matching(me, place.residents)
    return counts


def _too_skewed(me: Resident, spread: Spread, counts: Mapping[str, int], labels: Labels) -> str:
    domain = labels.get(spread.key)
    if domain is None:
        return f"its topology spread wants the label {spread.key}"
    least = min(counts.values(), default=0) if len(counts) >= spread.min_domains else 0
    if counts.get(domain, 0) + int(selects(spread.selector, me.labels)) - least > spread.max_skew:
        return f"its topology spread over {spread.key} allows no more there"
    return ""
