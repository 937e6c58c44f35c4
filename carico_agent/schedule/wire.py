"""What travels between kube-scheduler and an extender, as bytes.

Go's wire types have no JSON tags, hence the capital letters; scores must be integers (FACTS.md B). Answers are joined
from strings: dictionaries for 5,000 nodes, made only to be encoded, take three times as long.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

_PLAIN = re.compile("[a-z0-9.-]*")
_SCORES = [f'","Score":{score}}}' for score in range(11)]


def names_of(arguments: dict[str, Any]) -> list[str]:
    """The nodes that an ExtenderArgs asks about."""
    names: list[str] | None = arguments.get("NodeNames")
    if names is not None:
        return names
    items: list[Any] = (arguments.get("Nodes") or {}).get("items") or []
    return [node["metadata"]["name"] for node in items]


def filter_result(names: Sequence[str], refusals: Sequence[str | None]) -> bytes:
    """ExtenderFilterResult: why each of `names` is refused, None for those that pass.

    >>> filter_result(["a", "b"], [None, "no room"])
    b'{"NodeNames":["a"],"FailedNodes":{"b":"no room"},"Error":""}'
    """
    hosts = _quoted(names)
    words = {why: json.dumps(why) for why in set(refusals)}
    passed = [f'"{host}"' for host, why in zip(hosts, refusals, strict=True) if why is None]
    failed = [f'"{host}":{words[why]}' for host, why in zip(hosts, refusals, strict=True) if why is not None]
    return f'{{"NodeNames":[{",".join(passed)}],"FailedNodes":{{{",".join(failed)}}},"Error":""}}'.encode()


def host_priorities(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """HostPriorityList.

    >>> host_priorities(["a", "b"], [10, 0])
    b'[{"Host":"a","Score":10},{"Host":"b","Score":0}]'
    """
    rows = ['{"Host":"' + host + _SCORES[score] for host, score in zip(_quoted(names), scores, strict=True)]
    return f"[{','.join(rows)}]".encode()


def _quoted(names: Sequence[str]) -> Sequence[str]:
    """Each as in JSON, without the quotes around it. Names of nodes have nothing to escape: one look at all of them.

    >>> _quoted(["a", 'b"', '", "', "", "\\n"]), _quoted(["node-1.example"]), _quoted([])
    (['a', 'b\\\\"', '\\\\", \\\\"', '', '\\\\n'], ['node-1.example'], [])
    """
    return names if _PLAIN.fullmatch("".join(names)) else [json.dumps(name)[1:-1] for name in names]
