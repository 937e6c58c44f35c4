"""What kube-scheduler checks of a Pod against the other Pods: required affinity, anti-affinity and topology spread.

Pure. The source is pkg/scheduler/framework/plugins of 1.36 (interpodaffinity, podtopologyspread). Preferred rules
decide between nodes that fit and are left to kube-scheduler.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from carico_agent.burst.objects import Object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class Term:
    """One required term: Pods in these namespaces (None: all) that the selector matches, within one topology domain."""

    key: str
    namespaces: frozenset[str] | None
    selector: Object | None

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return (self.namespaces is None or namespace in self.namespaces) and selected(self.selector, labels)


@dataclass(frozen=True)
class Spread:
    """One topology spread constraint with DoNotSchedule."""

    key: str
    max_skew: int
    min_domains: int
    selector: Object | None
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(frozen=True)
class Resident:
    """A Pod on a node, as others see it."""

    namespace: str
    labels: Mapping[str, str]
    anti: tuple[Term, ...] = ()
    deleting: bool = False


@dataclass(frozen=True)
class NeighbourRules:
    """What one Pod wants of the others."""

    me: Resident
    affinity: tuple[Term, ...] = ()
    spreads: tuple[Spread, ...] = ()


@dataclass(frozen=True)
class Neighbourhood:
    """A node with its Pods. `affinity_ok`, `taints_ok`: whether the Pod in question passes these rules there."""

    labels: Mapping[str, str]
    residents: Sequence[Resident]
    affinity_ok: bool = True
    taints_ok: bool = True


def selected(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """A label selector; none matches nothing, an empty one everything.

    >>> [selected(one, {"app": "a"}) for one in (None, {}, {"matchLabels": {"app": "b"}})]
    [False, True, False]
    """
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_requirement(one, labels) for one in selector.get("matchExpressions") or ())


def _requirement(one: Object, labels: Mapping[str, str]) -> bool:
    have, values = labels.get(str(one["key"])), one.get("values") or ()
    match one.get("operator"):
        case "In":
            return have in values
        case "NotIn":
            return have not in values
        case "Exists":
            return have is not None
        case "DoesNotExist":
            return have is None
    return False


def neighbour_rules(spec: Object, namespace: str, labels: Mapping[str, str]) -> NeighbourRules | None:
    """Of a Pod's spec; None where it does not look at others."""
    affinity = spec.get("affinity") or {}
    near = _terms(affinity.get("podAffinity"), namespace)
    spreads = tuple(
        Spread(
            str(one.get("topologyKey", "")),
            int(one.get("maxSkew") or 1),
            int(one.get("minDomains") or 1),
            one.get("labelSelector"),
            (one.get("nodeAffinityPolicy") or "Honor") == "Honor",
            (one.get("nodeTaintsPolicy") or "Ignore") == "Honor",
        )
        for one in spec.get("topologySpreadConstraints") or ()
        if one.get("whenUnsatisfiable") == "DoNotSchedule"
    )
    anti = anti_terms(spec, namespace)
    if not (near or spreads or anti):
        return None
    return NeighbourRules(Resident(namespace, labels, anti), near, spreads)


def anti_terms(spec: Object, namespace: str) -> tuple[Term, ...]:
    return _terms((spec.get("affinity") or {}).get("podAntiAffinity"), namespace)


def _terms(side: Object | None, namespace: str) -> tuple[Term, ...]:
    return tuple(
        Term(str(one.get("topologyKey", "")), _namespaces(one, namespace), one.get("labelSelector"))
        for one in (side or {}).get(REQUIRED) or ()
    )


def _namespaces(term: Object, own: str) -> frozenset[str] | None:
    if term.get("namespaceSelector") == {}:
        return None
    named = frozenset(term.get("namespaces") or ())
    return named or frozenset((own,))


def neighbours_unjudged(spec: Object) -> str:
    """What these rules ask that is not known here: labels of namespaces, labels that a Pod gets when it is created."""
    affinity = spec.get("affinity") or {}
    terms = [
        term for side in ("podAffinity", "podAntiAffinity") for term in (affinity.get(side) or {}).get(REQUIRED) or ()
    ]
    if any(term.get("namespaceSelector") for term in terms):
        return "labels of namespaces (namespaceSelector)"
    rules = [*terms, *(spec.get("topologySpreadConstraints") or ())]
    if any(rule.get("matchLabelKeys") or rule.get("mismatchLabelKeys") for rule in rules):
        return "labels that its Pods get when they are created (matchLabelKeys)"
    return ""


def judge_places(
    me: Resident, rules: NeighbourRules | None, places: Sequence[Neighbourhood]
) -> Callable[[Neighbourhood], str]:
    """A function that says why a place is not for this Pod, or nothing; all Pods are counted once, here."""
    residents = [(place, one) for place in places for one in place.residents]
    refused = Counter(
        (term.key, place.labels[term.key])
        for place, one in residents
        for term in one.anti
        if term.key in place.labels and term.matches(me.namespace, me.labels)
    )
    avoided = _counted(residents, me.anti, lambda one, term: term.matches(one.namespace, one.labels))
    near = rules.affinity if rules else ()
    friends = _counted(residents, near, lambda one, _: all(term.matches(one.namespace, one.labels) for term in near))
    alone = not friends and all(term.matches(me.namespace, me.labels) for term in near)
    spreads = [(one, _domains(me, one, rules, places)) for one in rules.spreads] if rules else []

    def why_not(place: Neighbourhood) -> str:
        domains = list(place.labels.items())
        if any(refused[domain] for domain in domains):
            return "a Pod there does not want it near (anti-affinity)"
        if any(avoided[term.key, place.labels[term.key]] for term in me.anti if term.key in place.labels):
            return "its anti-affinity keeps it from a Pod there"
        if any(term.key not in place.labels for term in near):
            return "its affinity wants a topology key that the node lacks"
        if near and not alone and any(not friends[term.key, place.labels[term.key]] for term in near):
            return "no Pod that its affinity wants is there"
        for spread, counts in spreads:
            if why := _too_skewed(me, spread, counts, place):
                return why
        return ""

    return why_not


Matches = Callable[[Resident, Term], bool]


def _counted(
    residents: Iterable[tuple[Neighbourhood, Resident]], terms: tuple[Term, ...], matches: Matches
) -> "Counter[tuple[str, str]]":
    return Counter(
        (term.key, place.labels[term.key])
        for place, one in residents
        for term in terms
        if term.key in place.labels and matches(one, term)
    )


def _domains(me: Resident, spread: Spread, rules: NeighbourRules, places: Sequence[Neighbourhood]) -> dict[str, int]:
    """Matching Pods by domain, over the nodes that count."""
    keys = [one.key for one in rules.spreads]
    counts: dict[str, int] = {}
    for place in places:
        if any(key not in place.labels for key in keys):
            continue
        if (spread.honors_affinity and not place.affinity_ok) or (spread.honors_taints and not place.taints_ok):
            continue
        domain = place.labels[spread.key]
        found = sum(_spread_counts(me, spread, one) for one in place.residents)
        counts[domain] = counts.get(domain, 0) + found
    return counts


def _spread_counts(me: Resident, spread: Spread, one: Resident) -> bool:
    """Whether this Pod counts for the spread. By an empty selector kube-scheduler counts none."""
    if one.namespace != me.namespace or one.deleting:
        return False
    return bool(spread.selector) and selected(spread.selector, one.labels)


def _too_skewed(me: Resident, spread: Spread, counts: Mapping[str, int], place: Neighbourhood) -> str:
    domain = place.labels.get(spread.key)
    if domain is None:
        return f"its topology spread wants the label {spread.key}"
    least = min(counts.values(), default=0) if len(counts) >= spread.min_domains else 0
    mine = int(selected(spread.selector, me.labels))
    if counts.get(domain, 0) + mine - least > spread.max_skew:
        return f"its topology spread over {spread.key} allows no more there"
    return ""
