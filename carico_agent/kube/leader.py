"""Which of several replicas works: the holder of one Lease (coordination.k8s.io), as with other controllers.

A Lease that was not renewed for its duration may be taken. Its age is measured with our own clock, from when we first
saw that renewal: clocks of other machines are not compared.
"""

import asyncio
import time
from math import inf

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.errors import KubeError, Refused
from carico_agent.net.times import rfc3339


class LeaderLease:
    """Ask `hold` now and then, or let `run` do it and look at `leads`; `release` on the way out."""

    def __init__(self, client: KubeClient, namespace: str, name: str, identity: str, duration_s: float = 30.0) -> None:
        self._client, self._name, self.identity, self._duration_s = client, name, identity, duration_s
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._seen: tuple[str, float] = ("", 0.0)  # its version, and when we saw that first
        self._renewed_s = -inf
        self.holder = ""

    @property
    def leads(self) -> bool:
        """Whether we hold it, and renewed it in time."""
        return time.monotonic() < self._renewed_s + self._duration_s

    async def run(self) -> None:
        """Take it whenever that is possible, and keep it: for ever."""
        while True:
            try:
                await self.hold(time.monotonic())
            except KubeError as error:
                self.holder = f"unknown: {error}"
            await asyncio.sleep(self._duration_s / 4)

    async def hold(self, now_s: float) -> bool:
        """Take or renew it, if it may be had; True: we are the one. Raises KubeError. `now_s` is monotonic."""
        if self.holder == self.identity and now_s - self._renewed_s < self._duration_s / 6:
            return True
        try:
            lease = await self._client.get(f"{self._path}/{self._name}")
        except Refused as refused:
            if refused.status != 404:
                raise
            return await self._write(None, now_s)
        spec, version = lease.get("spec") or {}, str(lease["metadata"]["resourceVersion"])
        self.holder = str(spec.get("holderIdentity") or "")
        if self._seen[0] != version:
            self._seen = version, now_s
        expired = now_s - self._seen[1] > float(spec.get("leaseDurationSeconds") or self._duration_s)
        if self.holder not in ("", self.identity) and not expired:
            self._renewed_s = -inf
            return False
        return await self._write(version, now_s)

    async def release(self) -> None:
        """Nobody holds it any more, if we did."""
        if self.holder != self.identity:
            return
        try:
            lease = await self._client.get(f"{self._path}/{self._name}")
            if (lease.get("spec") or {}).get("holderIdentity") == self.identity:
                spec: Object = {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._patch(spec, lease["metadata"]["resourceVersion"])
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
        self.holder, self._renewed_s = "", -inf

    async def _write(self, version: str | None, now_s: float) -> bool:
        now = rfc3339(digits="microseconds")
        spec: Object = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self._duration_s),
            "renewTime": now,
        }
        if self.holder != self.identity:
            spec["acquireTime"] = now
        try:
            if version is not None:
                await self._patch(spec, version)
            else:
                meta: Object = {"name": self._name}
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
                await self._client.post(self._path, body)
        except Refused as refused:
            if refused.status not in (404, 409):  # another replica was faster
                raise
            self._renewed_s = -inf
            return False
        self.holder, self._renewed_s = self.identity, now_s
        return True

    async def _patch(self, spec: Object, version: str) -> None:
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        await self._client.patch(f"{self._path}/{self._name}", body)
