"""One of several replicas, by a Lease: for work that must not be done twice, and that may wait for a takeover."""

import time

from carico_agent.kube.client import KubeClient, Object
from carico_agent.kube.errors import Refused
from carico_agent.kube.placement_lease import lease_record
from carico_agent.net.times import rfc3339

DURATION_S = 30
"""How long a leader that is not heard of stays leader [s]. It renews after a third of that."""


class LeaderLease:
    """Ask `hold` again and again; whoever gets True may work for the next seconds."""

    def __init__(self, client: KubeClient, namespace: str, name: str, identity: str) -> None:
        self._client, self._name, self._identity = client, name, identity
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def hold(self) -> bool:
        """Whether we are the leader now; becomes it if nobody is. Raises KubeError."""
        try:
            record = lease_record(await self._client.get(f"{self._path}/{self._name}"))
        except Refused as refused:
            if refused.status != 404:
                raise
            return await self._write(None)
        age_s = time.time() - record.renewed_s
        if record.holder == self._identity and age_s < DURATION_S / 3:
            return True
        if record.holder not in ("", self._identity) and age_s < record.ttl_s:
            return False
        return await self._write(record.version)

    async def _write(self, version: str | None) -> bool:
        now = rfc3339(digits="microseconds")
        spec: Object = {"holderIdentity": self._identity, "renewTime": now, "leaseDurationSeconds": DURATION_S}
        try:
            if version is None:
                meta: Object = {"name": self._name}
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
                await self._client.post(self._path, body)
            else:
                body = {"metadata": {"resourceVersion": version, "annotations": {}}, "spec": spec}
                await self._client.patch(f"{self._path}/{self._name}", body)
        except Refused as refused:
            if refused.status != 409:  # another replica was faster
                raise
            return False
        return True
