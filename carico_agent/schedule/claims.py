"""How several extenders agree on who takes a place: one Lease per node, written by compare-and-swap.

A replica sees another one's bindings a little later than they happen. So before it binds it writes the Pod's UID into
the node's Lease, naming the version it has read; if another replica was faster the API server refuses (409), the claims
are read again and there may be no room any more. A claim stays for `claim_s`, longer than any watch lags, and is keyed
by UID, so a Pod that is claimed *and* seen bound counts once.

Why a Lease and not the Node: a Node changes with every heartbeat of its agent, and every change of it wakes all who
watch nodes. Why not leader election: with it a second replica answers nothing, and a takeover costs seconds.
"""

import json
import time
from dataclasses import dataclass, field

from carico_agent.kube.client import Client, Object
from carico_agent.kube.errors import Refused

CLAIMS = "carico.dev/claims"


@dataclass(slots=True)
class _Lease:
    version: str = ""
    """Empty: it does not exist yet."""
    claims: dict[str, float] = field(default_factory=dict)
    """UID → until when (wall clock, seconds since 1970)."""


class Claims:
    """Claims of all nodes. Calls for one node must not overlap: the extender holds a lock per node."""

    def __init__(self, client: Client, namespace: str, claim_s: float) -> None:
        self._client, self._claim_s = client, claim_s
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._leases: dict[str, _Lease] = {}
        self.conflicts = 0

    def knows(self, node: str) -> bool:
        """Whether the claims on `node` have been read, and not been overtaken since."""
        return node in self._leases

    async def read(self, node: str) -> dict[str, float]:
        """The claims on `node`, from the server."""
        try:
            self._keep(node, await self._client.get(f"{self._path}/{node}"))
        except Refused as refused:
            if refused.status != 404:
                raise
            self._leases[node] = _Lease()
        return self._leases[node].claims

    async def add(self, node: str, uid: str) -> bool:
        """Write a claim; False when somebody else wrote since we read: read again, look again."""
        lease, now_s = self._leases[node], time.time()
        claims = {key: until_s for key, until_s in lease.claims.items() if until_s > now_s}
        claims[uid] = round(now_s + self._claim_s, 3)
        body = self._body(node, lease.version, claims)
        try:
            if lease.version:
                self._keep(node, await self._client.put(f"{self._path}/{node}", body))
            else:
                self._keep(node, await self._client.post(self._path, body))
        except Refused as refused:
            if refused.status in (404, 409):
                self.conflicts += 1
                del self._leases[node]
                return False
            raise
        return True

    def drop(self, node: str, uid: str) -> None:
        """This Pod will not be bound here after all: the next claim that is written leaves it out."""
        if (lease := self._leases.get(node)) is not None:
            lease.claims.pop(uid, None)

    def _keep(self, node: str, lease: Object) -> None:
        meta = lease["metadata"]
        self._leases[node] = _Lease(meta["resourceVersion"], _parse((meta.get("annotations") or {}).get(CLAIMS)))

    def _body(self, node: str, version: str, claims: dict[str, float]) -> Object:
        meta: Object = {"name": node, "namespace": self._namespace,
                        "annotations": {CLAIMS: json.dumps(claims, separators=(",", ":"))}}  # fmt: skip
        if version:
            meta["resourceVersion"] = version
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}}


def _parse(text: str | None) -> dict[str, float]:
    try:
        value = json.loads(text or "{}")
        return {str(uid): float(until_s) for uid, until_s in value.items()}
    except (ValueError, AttributeError, TypeError):
        return {}
