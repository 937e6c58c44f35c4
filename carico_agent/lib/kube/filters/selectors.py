"""Selectors of labels and of nodes, as Kubernetes matches them. Pure."""

from collections.abc import Mapping
from typing import Any

Labels = Mapping[str, str]
Object = Mapping[str, Any]


def selects(selector: Object | None, labels: Labels) -> bool:
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


def is_everything(selector: Object | None) -> bool:
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


def node_term(term: Object, name: str, labels: Labels) -> bool:
    """One term of a node affinity; an empty one matches no node.

    >>> zone = {"key": "zone", "operator": "NotIn", "values": ["a"]}
    >>> [node_term({"matchExpressions": [zone]}, "n", labels) for labels in ({"zone": "a"}, {"zone": "b"}, {})]
    [False, True, True]
    >>> node_term({}, "n", {})
    False
    """
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_holds(one, labels) for one in expressions) and all(
        _holds(one, {"metadata.name": name}) for one in fields
    )


def _holds(expression: Object, labels: Labels) -> bool:
    have, values = labels.get(str(expression.get("key", ""))), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return have in values
        case "NotIn":
            return have not in values
        case "Exists":
            return have is not None
        case "DoesNotExist":
            return have is None
        case "Gt":
            return _compares(have, values, 1)
        case "Lt":
            return _compares(have, values, -1)
    return False


def _compares(have: str | None, values: Any, sign: int) -> bool:
    """Gt (1) and Lt (-1) of node selectors: both sides are whole numbers, or it does not hold.

    >>> [_compares(cores, ["7"], 1) for cores in ("7", "8", "many", None)]
    [False, True, False, False]
    """
    try:
        return sign * int(have or "") > sign * int(values[0])
    except (ValueError, IndexError):
        return False
