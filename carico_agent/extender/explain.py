"""Why a Pod finds no node: every node's refusal, alike ones together. Bounded, and nothing is changed by asking."""

from collections.abc import Mapping
from typing import Any

MAX_NAMES = 200
"""Names in an answer per reason; the count is of all."""


def explained(verdicts: Mapping[str, str | None]) -> dict[str, Any]:
    """Nodes by reason, the most frequent first; `accept` are those without one.

    >>> explained({"a": None, "b": "no room", "c": "no room"})["refuse"]
    [{'reason': 'no room', 'count': 2, 'nodes': ['b', 'c']}]
    """
    by_reason: dict[str | None, list[str]] = {}
    for name, why in verdicts.items():
        by_reason.setdefault(why, []).append(name)
    accept = sorted(by_reason.pop(None, []))
    rows = sorted(by_reason.items(), key=lambda row: (-len(row[1]), str(row[0])))
    refuse = [{"reason": why, "count": len(names), "nodes": sorted(names)[:MAX_NAMES]} for why, names in rows]
    return {"accept": {"count": len(accept), "nodes": accept[:MAX_NAMES]}, "refuse": refuse}
