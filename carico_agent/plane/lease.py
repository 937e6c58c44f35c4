"""Which of several instances writes: the holder of one Lease (coordination.k8s.io), as with other controllers.

A Lease that was not renewed for its duration may be taken. The age is measured with our own clock from when we first
saw that renewal: clocks of other machines are not compared.
"""

from datetime import UTC, datetime

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.errors import Refused

NAME = "carico-plane"


class InstanceLease:
    """`hold` now and then; True while we are the one. `release` on the way out."""

    def __init__(self, client: KubeClient, namespace: str, identity: str, duration_s: float) -> None:
        self._client, self.identity, self._duration_s = client, identity, duration_s
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._seen: tuple[str, float] = ("", 0.0)
        self.holder = ""

    async def hold(self, now_s: float) -> bool:
        """Take or renew it; raises KubeError. `now_s` is monotonic."""
        try:
            lease = await self._client.get(f"{self._path}/{NAME}")
        except Refused as refused:
            if refused.status != 404:
                raise
            return await self._create()
        spec, version = lease.get("spec") or {}, str(lease["metadata"]["resourceVersion"])
        self.holder = str(spec.get("holderIdentity") or "")
        if self._seen[0] != version:
            self._seen = (version, now_s)
        expired = now_s - self._seen[1] > float(spec.get("leaseDurationSeconds") or 0)
        if self.holder not in ("", self.identity) and not expired:
            return False
        return await self._renew(version)

    async def release(self) -> None:
        """Nobody holds it any more, if we did."""
        if self.holder != self.identity:
            return
        try:
            lease = await self._client.get(f"{self._path}/{NAME}")
            if (lease.get("spec") or {}).get("holderIdentity") == self.identity:
                version = lease["metadata"]["resourceVersion"]
                await self._patch({"holderIdentity": "", "leaseDurationSeconds": 1}, version)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
        self.holder = ""

    async def _create(self) -> bool:
        body: Object = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME},
            "spec": self._spec(),
        }
        try:
            await self._client.post(self._path, body)
        except Refused as refused:
            if refused.status != 409:
                raise
            return False
        self.holder = self.identity
        return True

    async def _renew(self, version: str) -> bool:
        try:
            await self._patch(self._spec(), version)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
            return False
        self.holder = self.identity
        return True

    async def _patch(self, spec: Object, version: str) -> None:
        await self._client.patch(f"{self._path}/{NAME}", {"metadata": {"resourceVersion": version}, "spec": spec})

    def _spec(self) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": self.identity, "leaseDurationSeconds": round(self._duration_s), "renewTime": now}
