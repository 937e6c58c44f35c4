"""Which of several replicas works: the holder of one Lease (coordination.k8s.io), as with other controllers.

A Lease that was not renewed for its duration may be taken. Its age is measured with our own clock, from when we first
saw that renewal: clocks of other machines are not compared. `leaseTransitions` counts the terms: it grows whenever
a replica takes the Lease, also if that is the last holder again after it came too late to renew it.

The clock is CLOCK_BOOTTIME. With time.monotonic, which stands still while a machine is suspended, a leader that woke up
took itself for the leader although another one had its Lease by then.

What no clock of the guest can show: a virtual machine that its hypervisor has paused. When it goes on, it believes for
the rest of its Lease's duration (8 s at most for extenders) that it leads, and what it binds in that time may be beyond
a number that fell meanwhile. Of Pods that ask for the extended resource the kubelet then refuses those that are too
many. A process that is stopped (SIGSTOP, a frozen cgroup) has no such trouble, except for a request that it had decided
on already.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.lib.kube.leases import lease_object, leases_path
from carico_agent.lib.net.times import boottime_s, rfc3339


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """A leader's Lease as it was read."""

    version: str = ""
    """Its resourceVersion. Empty: there is no such Lease."""
    holder: str = ""
    """Empty: it was released."""
    term: int = 0
    duration_s: int = 0
    annotations: tuple[tuple[str, str], ...] = ()

    def annotation(self, name: str) -> str:
        return dict(self.annotations).get(name, "")


def leader_record(lease: Object) -> LeaderRecord:
    """Read one Lease object. Malformed fields count as none, and no Lease holds for longer than MAX_DURATION_S.

    >>> spec = {"holderIdentity": "x", "leaseTransitions": 2, "leaseDurationSeconds": 8}
    >>> leader_record({"metadata": {"resourceVersion": "7"}, "spec": spec})
    LeaderRecord(version='7', holder='x', term=2, duration_s=8, annotations=())
    """
    meta, spec = lease["metadata"], lease.get("spec") or {}
    term, duration_s = (value if isinstance(value, int) else 0 for value in map(spec.get, _NUMBERS))
    notes = tuple((name, str(text)) for name, text in (meta.get("annotations") or {}).items())
    believed_s = min(max(duration_s, 0), MAX_DURATION_S)
    return LeaderRecord(str(meta["resourceVersion"]), str(spec.get("holderIdentity") or ""), term, believed_s, notes)


MAX_DURATION_S = 300
"""The longest that our settings allow [s]. A Lease that claims years would close every replica that waits for it."""
_NUMBERS = ("leaseTransitions", "leaseDurationSeconds")


async def read_leader(client: KubeClient, path: str) -> LeaderRecord:
    """A leader's Lease; an empty record if there is none."""
    try:
        return leader_record(await client.get(path))
    except Refused as refused:
        if refused.status != 404:
            raise
        return LeaderRecord()


class SeenLeader:
    """A leader's Lease as we saw it last, and since when it has been so by our own clock.

    >>> seen = SeenLeader()
    >>> for now_s, version in ((3.0, "7"), (5.0, "7"), (9.0, "")):
    ...     seen.see(LeaderRecord(version, "x" if version else ""), now_s)
    >>> seen.now.holder, seen.last.holder, seen.since_s
    ('', 'x', 9.0)
    """

    def __init__(self) -> None:
        self.now = LeaderRecord()
        """As it is. Empty: there is none, or we have not looked yet."""
        self.last = LeaderRecord()
        """As it was when it was there: one that was deleted may have been held."""
        self.since_s = -inf
        """When we first saw it as it is; -inf: we have not looked yet."""
        self.seen_s = -inf
        """When we looked last."""

    def see(self, found: LeaderRecord, now_s: float) -> None:
        if found.version != self.now.version or self.since_s == -inf:
            self.since_s = now_s
        if found.version:
            self.last = found
        self.now, self.seen_s = found, now_s


class LeaderLease:
    """Ask `hold` now and then, or let `run` do it and look at `leads`; `release` on the way out."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        duration_s: float = 30.0,
        annotations: Callable[[], Object] = dict,
        fit: Callable[[], bool] = lambda: True,
        owners: Callable[[], list[Object]] = list,
    ) -> None:
        """`annotations` are written with every renewal and with the release; while we are not `fit()`, `run` lets the
        Lease expire. `owners`: ownerReferences; the Lease is deleted with the objects that they name."""
        self._client, self._name, self.identity, self._duration_s = client, name, identity, duration_s
        self._path = leases_path(namespace)
        self._annotations, self._fit, self._owners = annotations, fit, owners
        self._seen = SeenLeader()
        self._renewed_s = -inf
        self.holder = ""
        self.term = 0
        """Of our leadership."""
        self.since_s = -inf
        """When that term began."""
        self.before: tuple[LeaderRecord, float] = (LeaderRecord(), -inf)
        """The Lease as it was when we took it, and since when we had seen it so [s]."""

    @property
    def leads(self) -> bool:
        """Whether we hold it, and renewed it in time."""
        return boottime_s() < self._renewed_s + self._duration_s

    async def run(self) -> None:
        """Take it whenever that is possible, and keep it, until it is cancelled."""
        while True:
            try:
                if self._fit():
                    await self.hold(boottime_s())
            except KubeError as error:
                self.holder = f"unknown: {error}"
            await asyncio.sleep(self._duration_s / 4)

    async def hold(self, now_s: float) -> bool:
        """Take or renew it, if it may be had; True: we are the one. Raises KubeError. `now_s` is monotonic."""
        if self.holder == self.identity and now_s - self._renewed_s < self._duration_s / 6:
            return True
        found = await read_leader(self._client, f"{self._path}/{self._name}")
        self.holder = found.holder
        self._seen.see(found, now_s)
        expired = now_s - self._seen.since_s > (found.duration_s or self._duration_s)
        if self.holder not in ("", self.identity) and not expired:
            self._renewed_s = -inf
            return False
        in_time = self.holder == self.identity and now_s < self._renewed_s + self._duration_s
        return await self._write(found, found.term if in_time else found.term + 1, now_s)

    async def release(self) -> None:
        """It has no holder any more, if we were it."""
        if self.holder != self.identity:
            return
        found = await read_leader(self._client, f"{self._path}/{self._name}")
        try:
            if found.holder == self.identity:
                await self._patch({"holderIdentity": "", "leaseDurationSeconds": 1}, found.version)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
        self.holder, self._renewed_s = "", -inf

    async def _write(self, found: LeaderRecord, term: int, now_s: float) -> bool:
        now = rfc3339(digits="microseconds")
        spec: Object = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self._duration_s),
            "renewTime": now,
            "leaseTransitions": term,
        }
        if term != found.term:
            spec["acquireTime"] = now
        try:
            if found.version:
                await self._patch(spec, found.version)
            else:
                meta: Object = {"name": self._name, "annotations": self._annotations(), **self._owned()}
                await self._client.post(self._path, lease_object(meta, spec))
        except Refused as refused:
            if refused.status not in (404, 409):  # another replica was faster
                raise
            self._renewed_s = -inf
            return False
        if term != found.term:
            # One that was deleted may have been held: what was begun under it is under way as after a crash.
            self.before, self.since_s = (self._seen.last, self._seen.since_s), now_s
        self.holder, self.term, self._renewed_s = self.identity, term, now_s
        return True

    def _owned(self) -> Object:
        owners = self._owners()
        return {"ownerReferences": owners} if owners else {}

    async def _patch(self, spec: Object, version: str) -> None:
        meta: Object = {"resourceVersion": version, **self._owned()}
        if notes := self._annotations():
            meta["annotations"] = notes
        await self._client.patch(f"{self._path}/{self._name}", {"metadata": meta, "spec": spec})
