"""Who exceeded what: every binding held against the number its node had published at that moment.

Order is etcd's own: nodes and Pods are watched, and their resourceVersions say which write came first. No clock of
the tests is in that. Clocks are read only to say how late a binding was that exceeds: the API server's audit log has
when the lower number was written and when the binding arrived, by one clock.

Why there is such a thing as "late": whoever binds decides on a number that it has seen, and the API server knows no
"bind if the node still says 8". A binding that was on its way when a lower number was written cannot be called back.
"""

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any

from carico_agent.lib.kube.access import from_kubeconfig
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.net.buckets import TokenBucket
from lab.support.control_plane import Plane


@dataclass(frozen=True, slots=True)
class Over:
    """One binding beyond the number that its node had published when it was written."""

    pod: str
    node: str
    count: int
    published: list[int]
    """The last few numbers, the newest last."""
    late_ms: float
    """From the write that took the number below `count` until the binding arrived at the server; inf: it never was
    that high."""

    def __str__(self) -> str:
        return f"{self.node}: {self.count} Pods, published {self.published}, {self.late_ms:.0f} ms late"


@dataclass
class Verdict:
    """What the recorder found."""

    bindings: int = 0
    most: dict[str, int] = field(default_factory=dict)
    over: list[Over] = field(default_factory=list)
    rises: int = 0
    falls: int = 0
    """Times a node published a higher, a lower number."""

    @property
    def latest_ms(self) -> float:
        return max((one.late_ms for one in self.over), default=0.0)


class Recorder:
    """Follows nodes and Pods from an empty cluster on, and judges."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._client = KubeClient(from_kubeconfig(plane.kubeconfig("admin-token")), TokenBucket(per_s=100.0, burst=100))
        self._events: list[tuple[int, str, bool, Object]] = []
        self._before = len(plane.audit())

    async def __aenter__(self) -> "Recorder":
        self._tasks = []
        for workload in ("nodes", "pods"):
            start = await self._client.get(f"/api/v1/{workload}")
            self._tasks.append(asyncio.create_task(self._follow(workload, start["metadata"]["resourceVersion"])))
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.sleep(1.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def _follow(self, workload: str, version: str) -> None:
        while True:
            params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "300"}
            async for line in self._client.lines(f"/api/v1/{workload}", params, lambda: None):
                thing = line["object"]
                version = thing["metadata"]["resourceVersion"]
                self._events.append((int(version), workload, line["type"] == "DELETED", thing))

    def judge(self, by: str) -> Verdict:
        """Hold every binding against `by`: "resource" (holders only) or "places" (all Pods)."""
        verdict, clock = Verdict(), _Clock(self._plane.audit()[self._before :])
        published: dict[str, list[tuple[int, int]]] = defaultdict(list)  # node → number, version
        held: dict[str, set[str]] = defaultdict(set)
        for version, workload, gone, thing in sorted(self._events, key=lambda event: event[0]):
            if workload == "nodes":
                number, so_far = number_of(thing, by), published[thing["metadata"]["name"]]
                if number is not None and (not so_far or so_far[-1][0] != number):
                    verdict.rises += bool(so_far) and number > so_far[-1][0]
                    verdict.falls += bool(so_far) and number < so_far[-1][0]
                    so_far.append((number, version))
                continue
            node, uid = thing["spec"].get("nodeName"), thing["metadata"]["uid"]
            if not node:
                continue
            if gone or thing["status"].get("phase") in ("Succeeded", "Failed"):
                held[node].discard(uid)
            elif uid not in held[node]:
                held[node].add(uid)
                verdict.bindings += 1
                count = len(held[node])
                verdict.most[node] = max(count, verdict.most.get(node, 0))
                if count > (published[node][-1][0] if published[node] else 0):
                    verdict.over.append(_over(thing["metadata"]["name"], node, count, published[node], clock))
        return verdict


def _over(pod: str, node: str, count: int, published: list[tuple[int, int]], clock: "_Clock") -> Over:
    numbers = [number for number, _ in published]
    enough = [place for place, number in enumerate(numbers) if number >= count]
    late_ms = 1e3 * (clock.bound_s[pod] - clock.written_s[published[enough[-1] + 1][1]]) if enough else inf
    return Over(pod, node, count, numbers[-4:], late_ms)


class _Clock:
    """The server's own times, from its audit log: when node writes were answered and bindings came in."""

    def __init__(self, audit: list[Any]) -> None:
        self.written_s: dict[int, float] = {}
        self.bound_s: dict[str, float] = {}
        for entry in audit:
            ref = entry.get("objectRef") or {}
            if ref.get("resource") == "nodes" and entry["verb"] == "patch" and "responseObject" in entry:
                version = int(entry["responseObject"]["metadata"].get("resourceVersion", 0))
                self.written_s.setdefault(version, _seconds(entry["stageTimestamp"]))
            elif ref.get("subresource") == "binding" and entry["responseStatus"]["code"] < 300:
                self.bound_s[ref["name"]] = _seconds(entry["requestReceivedTimestamp"])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def number_of(node: Object, by: str) -> int | None:
    if by == "resource":
        amount = node["status"]["allocatable"].get(RESOURCE)
        return None if amount is None else int(amount)
    text = (node["metadata"].get("annotations") or {}).get("carico.dev/status")
    places = json.loads(text).get("places") if text else None
    slots = (node["metadata"].get("annotations") or {}).get("carico.dev/slots")
    return int(places) if places is not None else None if slots is None else int(slots)
