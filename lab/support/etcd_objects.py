"""Objects of a private control plane written straight into its etcd, past the API server: 5,000 Pods in a second.

The API server reads JSON there as well as its own protobuf, and its watch cache takes them in like any other write.
"""

import base64
import copy
import json
import urllib.request
from collections.abc import Mapping
from typing import Any

AT_ONCE = 100
"""Keys per transaction; etcd takes 128."""


class Etcd:
    """The etcd at `url`, by its JSON gateway."""

    def __init__(self, url: str) -> None:
        self.url = url

    def put(self, objects: Mapping[str, Any]) -> None:
        """Objects by key, such as /registry/pods/default/a."""
        puts = [{"requestPut": {"key": _text(key), "value": _text(json.dumps(one))}} for key, one in objects.items()]
        for at in range(0, len(puts), AT_ONCE):
            self._ask("txn", {"success": puts[at : at + AT_ONCE]})

    def delete(self, prefix: str) -> None:
        """Everything whose key begins so."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        self._ask("deleterange", {"key": _text(prefix), "range_end": _text(end)})

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    def _ask(self, what: str, body: Any) -> None:
        request = urllib.request.Request(f"{self.url}/v3/kv/{what}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()


def copies(pod: Any, count: int) -> dict[str, Any]:
    """So many Pods like this one, which the API server has made, by their keys."""
    found = {}
    for number in range(count):
        one = copy.deepcopy(pod)
        meta = one["metadata"]
        meta["name"] = f"{meta['name']}-{number}"
        meta["uid"] = f"{number:08x}{meta['uid'][8:]}"
        for key in ("resourceVersion", "managedFields", "selfLink"):
            meta.pop(key, None)
        found[f"/registry/pods/{meta['namespace']}/{meta['name']}"] = {"apiVersion": "v1", "kind": "Pod", **one}
    return found


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
