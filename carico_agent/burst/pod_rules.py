"""What kube-scheduler checks of one Pod on one node, beside the room: node selector, node affinity, taints, host ports.

Pure. The source is pkg/scheduler/framework/plugins of 1.36 (nodeaffinity, tainttoleration, nodeunschedulable,
nodeports, noderesources); tests/burst/test_filters_differ.py holds random Pods and nodes against a real kube-scheduler.
Rules about other Pods (affinity, spread) are in `neighbours`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from carico_agent.burst.neighbours import NeighbourRules, neighbour_rules, neighbours_unjudged
from carico_agent.burst.objects import Object

CORDONED = "node.kubernetes.io/unschedulable"
HINDERS = ("NoSchedule", "NoExecute")
"""Effects of taints that keep a Pod from a node; PreferNoSchedule does not."""
EVERY_ADDRESS = "0.0.0.0"

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
    """What kube-scheduler checks of this Pod and burst cannot. Where kube-scheduler has decided, it is believed."""

    def why_not(self, name: str, labels: Mapping[str, str], taints: Iterable[Taint], used: frozenset[Port]) -> str:
        """Why a node of this name, these labels and taints is not for this Pod, or nothing."""
        if self.node_name and self.node_name != name:
            return f"it is for node {self.node_name}"
        for key, value in self.selector:
            if labels.get(key) != value:
                return f"its nodeSelector wants {key}={value}"
        if self.terms is not None and not any(term_matches(term, name, labels) for term in self.terms):
            return "its node affinity does not match"
        for taint in taints:
            if taint.effect in HINDERS and not any(tolerates(one, taint) for one in self.tolerations):
                return f"it does not tolerate the taint {taint}"
        if self.ports and any(_conflict(mine, other) for mine in self.ports for other in used):
            return "a host port is taken"
        return ""


FREE = PodRules()
"""Of a Pod that may run anywhere."""


def term_matches(term: Object, name: str, labels: Mapping[str, str]) -> bool:
    """One term of a node affinity; an empty one matches nothing.

    >>> zone = {"key": "zone", "operator": "NotIn", "values": ["a"]}
    >>> [term_matches({"matchExpressions": [zone]}, "n", labels) for labels in ({"zone": "a"}, {"zone": "b"}, {})]
    [False, True, True]
    >>> term_matches({}, "n", {})
    False
    """
    expressions, names = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not names:
        return False
    return all(expression_matches(one, labels) for one in expressions) and all(
        expression_matches(one, {"metadata.name": name}) for one in names
    )


def expression_matches(expression: Object, labels: Mapping[str, str]) -> bool:
    """A requirement of a node selector.

    >>> many = {"key": "cores", "operator": "Gt", "values": ["7"]}
    >>> [expression_matches(many, {"cores": cores}) for cores in ("7", "8", "many")]
    [False, True, False]
    """
    key, operator, values = str(expression["key"]), expression.get("operator"), expression.get("values") or ()
    have = labels.get(key)
    if operator == "In":
        return have in values
    if operator == "NotIn":
        return have not in values
    if operator == "Exists":
        return have is not None
    if operator == "DoesNotExist":
        return have is None
    if operator in ("Gt", "Lt") and have is not None:
        mine, bound = _whole(have), _whole(str(values[0])) if values else None
        return mine is not None and bound is not None and (mine > bound if operator == "Gt" else mine < bound)
    return False


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


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
    same = one[1:] == other[1:]
    return same and (one[0] == other[0] or EVERY_ADDRESS in (one[0], other[0]))


def taints_of(spec: Object) -> tuple[Taint, ...]:
    """Of a Node's spec. A cordoned node counts as tainted, as kube-scheduler sees it."""
    found = {
        Taint(str(one.get("key", "")), str(one.get("value") or ""), str(one.get("effect", "")))
        for one in spec.get("taints") or ()
    }
    if spec.get("unschedulable"):
        found.add(Taint(CORDONED))
    return tuple(sorted(found, key=str))


def rules_of(pod: Object, namespace: str = "") -> PodRules:
    """Of a Pod object or a template; `namespace`: where its Pods are, if the object does not say."""
    spec = pod.get("spec") or {}
    meta = pod.get("metadata") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    rules = PodRules(
        _named_node(pod, spec),
        tuple(sorted((spec.get("nodeSelector") or {}).items())),
        tuple((affinity or {}).get("nodeSelectorTerms") or ()) if affinity else None,
        tuple(spec.get("tolerations") or ()),
        ports_of(spec),
        neighbour_rules(spec, str(meta.get("namespace") or namespace), dict(meta.get("labels") or {})),
        _unjudged(spec),
    )
    return FREE if rules == FREE else rules


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
