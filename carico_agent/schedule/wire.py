"""What travels between kube-scheduler and an extender, as bytes.

Go's wire types have no JSON tags, hence the capital letters; scores must be integers (FACTS.md B). Answers are joined
from strings: dictionaries for 5,000 nodes, made only to be encoded, take three times as long.
"""

import json
from collections.abc import Sequence
from typing import Any

_SCORES = [f'","Score":{score}}}' for score in range(11)]


def names_of(arguments: dict[str, Any]) -> list[str]:
    """The nodes that an ExtenderArgs asks about."""
    names: list[str] | None = arguments.get("NodeNames")
    if names is not None:
        return names
    items: list[Any] = (arguments.get("Nodes") or {}).get("items") or []
    return [node["metadata"]["name"] for node in items]


def filter_result(names: Sequence[str], refusals: Sequence[str | None], plain: bool = False) -> bytes:
    """ExtenderFilterResult: why each of `names` is refused, None for those that pass.

    `plain`: these are names of nodes that exist, so the API server has seen to it that nothing in them needs escaping.

    >>> filter_result(["a", "b"], [None, "no room"])
    b'{"NodeNames":["a"],"FailedNodes":{"b":"no room"},"Error":""}'
    """
    hosts = names if plain else _quoted(names)
    words = {why: json.dumps(why) for why in set(refusals)}
    passed = [f'"{host}"' for host, why in zip(hosts, refusals, strict=True) if why is None]
    failed = [f'"{host}":{words[why]}' for host, why in zip(hosts, refusals, strict=True) if why is not None]
    return f'{{"NodeNames":[{",".join(passed)}],"FailedNodes":{{{",".join(failed)}}},"Error":""}}'.encode()


def host_priorities(names: Sequence[str], scores: Sequence[int], plain: bool = False) -> bytes:
    """HostPriorityList; `plain` as above.

    >>> host_priorities(["a", "b"], [10, 0])
    b'[{"Host":"a","Score":10},{"Host":"b","Score":0}]'
    """
    hosts = names if plain else _quoted(names)
    rows = ['{"Host":"' + host + _SCORES[score] for host, score in zip(hosts, scores, strict=True)]
    return f"[{','.join(rows)}]".encode()


def _quoted(names: Sequence[str]) -> list[str]:
    """Each as in JSON, without the quotes around it."""
    return [json.dumps(name)[1:-1] for name in names]
