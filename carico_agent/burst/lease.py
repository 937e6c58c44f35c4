"""Who leads: one Lease, as kube-controller-manager has it. Two leaders do no harm to Jobs (every write of a move is a
compare-and-swap), they would only order nodes and look at everything twice."""

import asyncio
import time

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.errors import KubeError, Refused
from carico_agent.net.times import rfc3339


class LeaderLease:
    """`run` for ever; `leads` is true while this process holds the Lease and has renewed it in time."""

    def __init__(self, client: KubeClient, namespace: str, identity: str, lasts_s: float = 15.0) -> None:
        self._client, self._identity, self._lasts_s = client, identity, lasts_s
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = "carico-burst"
        self._until_s = -1.0
        self._seen: tuple[str, float] = ("", 0.0)
        self.holder = ""

    @property
    def leads(self) -> bool:
        return time.monotonic() < self._until_s

    async def run(self) -> None:
        while True:
            try:
                await self._try()
            except KubeError as error:
                self.holder = f"unknown: {error}"
            await asyncio.sleep(self._lasts_s / 4)

    async def _try(self) -> None:
        asked_s = time.monotonic()
        try:
            lease = await self._client.get(f"{self._path}/{self._name}")
        except Refused as refused:
            if refused.status != 404:
                raise
            lease = {}
        if not self._may_take(lease, asked_s):
            return
        if await self._write(lease):
            self._until_s, self.holder = asked_s + self._lasts_s, self._identity

    def _may_take(self, lease: Object, now_s: float) -> bool:
        """Ours, nobody's, or not renewed for longer than it lasts, by our own clock."""
        spec = lease.get("spec") or {}
        self.holder = str(spec.get("holderIdentity") or "")
        if self.holder in ("", self._identity):
            return True
        version = str(lease["metadata"]["resourceVersion"])
        if self._seen[0] != version:
            self._seen = version, now_s
        return now_s - self._seen[1] > float(spec.get("leaseDurationSeconds") or self._lasts_s)

    async def _write(self, lease: Object) -> bool:
        now = rfc3339(digits="microseconds")
        spec: Object = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._lasts_s),
            "renewTime": now,
            "acquireTime": (lease.get("spec") or {}).get("acquireTime") or now,
        }
        meta: Object = {"name": self._name}
        try:
            if lease:
                meta["resourceVersion"] = lease["metadata"]["resourceVersion"]
                await self._client.patch(f"{self._path}/{self._name}", {"metadata": meta, "spec": spec})
            else:
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
                await self._client.post(self._path, body)
        except Refused as refused:
            if refused.status == 409:
                return False
            raise
        return True
