"""`kubectl carico why POD`: which nodes refuse it, and why.

The extender knows best: it counts Pods that are being bound, and has its own policy and settings. It is asked through
the API server (Service proxy, with the user's rights) or at an address that is given. Where it cannot be asked, the
same code answers from Nodes, Pods and Leases, with the policy pod-capacity. What kube-scheduler itself last wrote about
the Pod (the event FailedScheduling) stands beside both; a user who may not list nodes sees that alone.
"""

from dataclasses import dataclass, field
from typing import Any

import aiohttp

from carico_agent.extender.explain import explained
from carico_agent.extender.extender import Extender
from carico_agent.extender.extender_config import ExtenderConfig
from carico_agent.extender.policies.pod_capacity import PodCapacity
from carico_agent.kubectl.cells import printable
from carico_agent.kubectl.cluster import cluster_of
from carico_agent.kubectl.reading import Scope, items, read
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused

SERVICE = "https:carico-extender:admission"
"""The extender's Service and the port that wants no client certificate (deploy/base/30-extender.yaml)."""

ASK_S = 5.0
SHOWN = 8
"""Names of nodes per reason in a text; JSON has up to 200."""


@dataclass
class WhyAnswer:
    """About one Pod. `found`: nodes by reason (extender/explain.py); None: not known."""

    namespace: str
    name: str
    phase: str = ""
    node: str = ""
    source: str = ""
    found: dict[str, Any] | None = None
    event: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """It has no node, and needs one."""
        return not self.node and self.phase not in ("Succeeded", "Failed")

    def body(self) -> dict[str, Any]:
        received = {"namespace": self.namespace, "pod": self.name, "phase": self.phase, "node": self.node or None}
        return {**received, "source": self.source or None, **(self.found or {}), "event": self.event or None}


async def why(client: KubeClient, scope: Scope, name: str, extender: str = "") -> WhyAnswer:
    """`extender`: its URL, else its Service is asked. Raises KubeError when there is no such Pod for this user."""
    namespace = scope.only or scope.namespace
    pod = await client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    phase, node = (pod.get("status") or {}).get("phase") or "", (pod.get("spec") or {}).get("nodeName") or ""
    answer = WhyAnswer(namespace, name, str(phase), str(node))
    if not answer.waits:
        return answer
    answer.event = await _event(client, answer)
    try:
        asked = await _ask(client, scope, pod["metadata"]["uid"], extender)
        answer.source, answer.found = f"the extender (policy {asked.pop('policy', 'unknown')})", asked
    except KubeError as error:
        answer.notes.append(f"the extender could not be asked: {error}")
        await _compute(client, scope, pod, answer)
    return answer


async def _event(client: KubeClient, answer: WhyAnswer) -> str:
    """What kube-scheduler last wrote about the Pod."""
    selector = f"involvedObject.kind=Pod,involvedObject.name={answer.name},reason=FailedScheduling"
    try:
        found = await items(client, f"/api/v1/namespaces/{answer.namespace}/events", dict, fieldSelector=selector)
    except Refused as refused:
        answer.notes.append(f"events are not shown: {refused}")
        return ""
    newest = max(found, key=_event_time, default={})
    return str(newest.get("message") or "")


def _event_time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


async def _ask(client: KubeClient, scope: Scope, uid: str, extender: str) -> dict[str, Any]:
    if not extender:
        return await client.get(f"/api/v1/namespaces/{scope.lease_namespace}/services/{SERVICE}/proxy/why/{uid}")
    try:
        timeout = aiohttp.ClientTimeout(total=ASK_S)
        url = f"{extender.rstrip('/')}/why/{uid}"
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            body = await response.json(content_type=None)
            if response.status != 200:
                raise KubeError(str(body.get("error")) if isinstance(body, dict) else f"status {response.status}")
            if not isinstance(body, dict) or "refuse" not in body:
                raise KubeError(f"{extender} is no extender of carico")
            return body
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise KubeError(f"{extender} cannot be reached: {error or 'no answer'}") from error


async def _compute(client: KubeClient, scope: Scope, pod: Object, answer: WhyAnswer) -> None:
    seen = await read(client, Scope(scope.namespace, "", "", scope.resource, scope.lease_namespace))
    answer.notes += seen.notes
    if seen.nodes is None:
        return
    cluster = cluster_of(client, seen, scope)
    extender = Extender(client, cluster, PodCapacity(), ExtenderConfig(scope.lease_namespace, scope.resource))
    answer.source, answer.found = (
        "annotations and Leases (policy pod-capacity)",
        explained(extender.candidates.why_pod(pod)),
    )


def describe(answer: WhyAnswer) -> str:
    """For people."""
    who = f"{answer.namespace}/{answer.name}"
    if not answer.waits:
        return f"{who}: {answer.phase.lower()}{f' on {answer.node}' if answer.node else ''}"
    lines = [f"{who} waits for a node"]
    if answer.found is not None:
        accept = answer.found["accept"]
        lines.append(f"by {answer.source}:")
        lines += [f"  {_nodes(row)} {row['reason']}" for row in answer.found["refuse"]]
        lines.append(f"  {_nodes(accept)} carico has room" if accept["count"] else "  no node has room")
    if answer.event:
        lines.append(f"kube-scheduler: {answer.event}")
    return "\n".join(map(printable, lines))


def _nodes(row: Any) -> str:
    """
    >>> _nodes({"count": 2, "nodes": ["a", "b"]}), _nodes({"count": 9, "nodes": list("abcdefghi")})
    ('a, b:', '9 nodes (a, b, c, d, e, f, g, h, …):')
    """
    names = ", ".join(row["nodes"][:SHOWN])
    return f"{names}:" if row["count"] <= SHOWN else f"{row['count']} nodes ({names}, …):"
