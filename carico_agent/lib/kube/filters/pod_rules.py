"""What kube-scheduler checks of one Pod on one node, beside amounts: node selector, node affinity, taints, host ports.

Pure. Rules about other Pods (affinity, spread) are in `neighbours`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from carico_agent.lib.kube.filters.neighbours import (
    REQUIRED,
    NeighbourRules,
    neighbour_rules,
    neighbours_unjudged,
    too_long,
)
from carico_agent.lib.kube.filters.selectors import Labels, Object, node_term

CORDONED = "node.kubernetes.io/unschedulable"
HINDERS = ("NoSchedule", "NoExecute")
"""Effects of taints that keep a Pod from a node; PreferNoSchedule does not."""
EVERY_ADDRESS = "0.0.0.0"
MAX_CONDITIONS, MAX_VALUES, MAX_TOLERATIONS = 200, 5000, 200
"""Of one Pod that are judged, for every node: an object of 1.5 MB has room for tens of thousands. A Pod with a longer
node affinity, more host ports or too many rules about other Pods suits no node here. Further
tolerations do not count."""

Port = tuple[str, str, int]
"""Address, protocol and number on the host."""


@dataclass(frozen=True)
class Taint:
    """What keeps Pods from a node that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


CORDON = Taint(CORDONED)
"""What a cordoned node has."""


@dataclass(frozen=True)
class PodRules:
    """Where a Pod may run. Terms and tolerations are as in the Pod's spec."""

    node_name: str = ""
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Object, ...] | None = None
    """Required node affinity: one of these terms must match. None: it has none."""
    tolerations: tuple[Object, ...] = ()
    ports: tuple[Port, ...] = ()
    neighbours: NeighbourRules | None = None
    unjudged: str = ""
    """What kube-scheduler checks of this Pod and these rules do not. Where kube-scheduler has decided, it is believed.
    """

    def why_not(self, name: str, labels: Labels, taints: Iterable[Taint], used: Iterable[Port]) -> str:
        """Why a node of this name, these labels and taints is not for this Pod, or nothing."""
        if why := self.mismatch(name, labels) or self.untolerated(taints):
            return why
        return "its host port is taken" if self.collides(used) else ""

    def mismatch(self, name: str, labels: Labels) -> str:
        """Why its node selector or its node affinity excludes the node, or nothing."""
        if self.node_name and self.node_name != name:
            return f"it is for node {self.node_name}"
        for key, value in self.selector:
            if labels.get(key) != value:
                return f"its node selector wants {key}={value}"
        if self.terms is not None and not any(node_term(term, name, labels) for term in self.terms):
            return "its node affinity does not match"
        return ""

    def untolerated(self, taints: Iterable[Taint]) -> str:
        """Which taint keeps it away, or nothing."""
        for taint in taints:
            if taint.effect in HINDERS and not tolerated(self.tolerations, taint):
                return f"it does not tolerate the taint {taint}"
        return ""

    def collides(self, used: Iterable[Port]) -> bool:
        """Whether another Pod has one of its host ports."""
        return bool(self.ports) and any(_conflict(mine, other) for other in used for mine in self.ports)


FREE = PodRules()
"""Of a Pod that may run anywhere."""


def tolerated(tolerations: Iterable[Object], taint: Taint) -> bool:
    return any(tolerates(one, taint) for one in tolerations)


def tolerates(toleration: Object, taint: Taint) -> bool:
    """
    >>> gpu = Taint("gpu", "yes")
    >>> [tolerates(one, gpu) for one in ({"operator": "Exists"}, {"key": "gpu"}, {"key": "gpu", "value": "yes"})]
    [True, False, True]
    """
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    if toleration.get("key") and toleration["key"] != taint.key:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and bool(toleration.get("key")) and (toleration.get("value") or "") == taint.value


def _conflict(one: Port, other: Port) -> bool:
    """
    >>> [_conflict(("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", port)) for port in (80, 81)]
    [True, False]
    """
    return one[1:] == other[1:] and (one[0] == other[0] or EVERY_ADDRESS in (one[0], other[0]))


def taints_of(spec: Object) -> tuple[Taint, ...]:
    """Of a Node's spec. A cordoned node counts as tainted, as kube-scheduler sees it."""
    found = {
        Taint(str(one.get("key", "")), str(one.get("value") or ""), str(one.get("effect", "")))
        for one in spec.get("taints") or ()
    }
    if spec.get("unschedulable"):
        found.add(CORDON)
    return tuple(sorted(found, key=str))


def rules_of(pod: Object, namespace: str = "") -> PodRules:
    """Of a Pod object or a template; `namespace`: where its Pods are, if the object does not say."""
    spec = pod.get("spec") or {}
    meta = pod.get("metadata") or {}
    affinity, ports = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED), ports_of(spec)
    terms = _judged(node_terms_of(affinity)) if affinity else None
    rules = PodRules(
        _named_node(pod, spec),
        tuple(sorted((spec.get("nodeSelector") or {}).items())),
        () if too_long(spec) or len(ports) > MAX_CONDITIONS else terms,
        tuple(spec.get("tolerations") or ())[:MAX_TOLERATIONS],
        ports[:MAX_CONDITIONS],
        neighbour_rules(spec, str(meta.get("namespace") or namespace), dict(meta.get("labels") or {})),
        _unjudged(spec),
    )
    return FREE if rules == FREE else rules


def node_terms_of(selector: Object) -> tuple[Object, ...]:
    """Terms of a NodeSelector: of a Pod's required node affinity or of a volume."""
    return tuple(selector.get("nodeSelectorTerms") or ())


def _judged(terms: tuple[Object, ...]) -> tuple[Object, ...]:
    """These terms, or none where there are too many.

    >>> term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    >>> len(_judged((term,))), len(_judged((term,) * 300))
    (1, 0)
    """
    fields = ("matchExpressions", "matchFields")
    conditions = [one for term in terms for field_ in fields for one in term.get(field_) or ()]
    values = sum(len(one.get("values") or ()) for one in conditions)
    return terms if max(len(terms), len(conditions)) <= MAX_CONDITIONS and values <= MAX_VALUES else ()


def _named_node(pod: Object, spec: Object) -> str:
    """Of a template only: in a Pod, kube-scheduler writes it."""
    return "" if (pod.get("metadata") or {}).get("uid") else str(spec.get("nodeName") or "")


def ports_of(spec: Object) -> tuple[Port, ...]:
    """Ports of the host that a Pod's containers and sidecars take."""
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    found = []
    for container in [*(spec.get("containers") or ()), *sidecars]:
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else 0)
            if number:
                found.append(
                    (str(port.get("hostIP") or EVERY_ADDRESS), str(port.get("protocol") or "TCP"), int(number))
                )
    return tuple(sorted(found))


def _unjudged(spec: Object) -> str:
    for volume in spec.get("volumes") or ():
        if "persistentVolumeClaim" in volume or "ephemeral" in volume:
            return "where its volumes are"
    if spec.get("resourceClaims"):
        return "devices of its resource claims"
    return neighbours_unjudged(spec)


@dataclass(frozen=True)
class NodeTraits:
    """What a node has beside room, for `PodRules`."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


PLAIN = NodeTraits()
"""Of a node without labels and taints."""
