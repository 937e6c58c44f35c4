"""Selectors of labels, of nodes, and tolerations, as Kubernetes matches them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

Labels = Mapping[str, str]
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint that a cordoned node has."""


def selects(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """Whether a LabelSelector selects these labels. None selects nothing, an empty one everything.

    >>> web = {"app": "web"}
    >>> selects(None, web), selects({}, web), selects({"matchLabels": {"app": "db"}}, web)
    (False, True, False)
    >>> selects({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}, web)
    True
    """
    if selector is None:
        return False
    exact = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        _holds(one, labels) for one in selector.get("matchExpressions") or ()
    )


def is_everything(selector: Mapping[str, Any] | None) -> bool:
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


def node_matches(spec: Mapping[str, Any], name: str, labels: Labels) -> bool:
    """The Pod's nodeSelector and its required node affinity.

    >>> term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    >>> required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    >>> [node_matches({"affinity": {"nodeAffinity": required}}, "a", labels) for labels in ({}, {"disk": "ssd"})]
    [False, True]
    """
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or node_terms(required, name, labels)


def node_terms(selector: Mapping[str, Any], name: str, labels: Labels) -> bool:
    """A NodeSelector: one of its terms holds; a term without expressions holds nowhere."""
    return any(node_term(term, name, labels) for term in selector.get("nodeSelectorTerms") or ())


def node_term(term: Mapping[str, Any], name: str, labels: Labels) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_holds(one, labels) for one in expressions) and all(
        _holds(one, {"metadata.name": name}) for one in fields
    )


def _holds(expression: Mapping[str, Any], labels: Labels) -> bool:
    key, operator, values = expression.get("key", ""), expression.get("operator"), expression.get("values") or []
    has = key in labels
    match operator:
        case "In":
            return has and labels[key] in values
        case "NotIn":
            return not has or labels[key] not in values
        case "Exists":
            return has
        case "DoesNotExist":
            return not has
        case "Gt" | "Lt":
            return has and _compares(operator, labels[key], values)
    return False


def _compares(operator: str, have: str, values: list[str]) -> bool:
    try:
        return int(have) > int(values[0]) if operator == "Gt" else int(have) < int(values[0])
    except (ValueError, IndexError):
        return False


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    """
    >>> taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    >>> tolerates([{"key": "gpu", "operator": "Exists"}], taint), tolerates([{"key": "gpu", "value": "no"}], taint)
    (True, False)
    """
    return any(_tolerates(one, taint) for one in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    operator = toleration.get("operator") or "Equal"
    if not toleration.get("key"):
        return operator == "Exists"
    if toleration["key"] != taint.get("key"):
        return False
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")
