"""Seats held back: one PriorityLevelConfiguration that no FlowSchema names, and nothing else is touched.

The object is its own record: an annotation says which shares we gave it. A spec that says something else was edited by
another client, and is theirs from then on: we neither change nor delete it. Deletions name the version that was read,
so that an edit that comes between is not lost.

Source: *MerKury* appendix A.3, where the level is called merkury-empty. It also shortens the queues of Kubernetes' own
levels; we leave those alone.
"""

import logging
from dataclasses import dataclass, field

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.plane.shares import RESERVE

log = logging.getLogger(__name__)

NAME = RESERVE
GROUP = "flowcontrol.apiserver.k8s.io"
VERSIONS = ("v1", "v1beta3", "v1beta2", "v1beta1")
"""Newest first. v1 since 1.29, v1beta3 1.26 to 1.31, v1beta2 1.23 to 1.28, v1beta1 1.20 to 1.25."""
ASSURED = ("v1beta1", "v1beta2")
SHARES = "carico.dev/shares"
OWNER = "carico-plane"
OWNER_PATH = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
DEFAULT_HANDS = 8
"""What kube-apiserver takes for a level that does not say."""


class NoFairness(KubeError):
    """This API server has no priority levels that we know how to use."""


@dataclass(frozen=True, slots=True)
class ReserveObject:
    """`carico-reserve` as it was read."""

    version: str
    shares: int
    edited: str = ""
    """What another client did to it; empty: it is as we wrote it."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The shares of all levels that have some, without ours; and ours."""

    shares: dict[str, int] = field(default_factory=dict)
    ours: ReserveObject | None = None
    lendable: dict[str, int] = field(default_factory=dict)
    """Per cent of a level's seats that others may borrow (1.26 and newer)."""

    hands: dict[str, int] = field(default_factory=dict)
    """Hand size of a level's queues: how many of them one flow may use. Not there: the level rejects."""

    @property
    def all_shares(self) -> dict[str, int]:
        return self.shares if self.ours is None else {**self.shares, NAME: self.ours.shares}


def key_of(version: str) -> str:
    """Which field holds the shares."""
    return "assuredConcurrencyShares" if version in ASSURED else "nominalConcurrencyShares"


def spec_of(version: str, shares: int) -> Object:
    """A level that lends and borrows nothing, and rejects every request that comes to it."""
    limited: Object = {key_of(version): shares, "limitResponse": {"type": "Reject"}}
    if version not in ASSURED:
        limited |= {"lendablePercent": 0, "borrowingLimitPercent": 0}
    return {"type": "Limited", "limited": limited}


def read_levels(items: list[Object], version: str) -> Levels:
    """From a list of PriorityLevelConfigurations. Exempt levels have shares too since 1.28."""
    shares: dict[str, int] = {}
    lendable: dict[str, int] = {}
    hands: dict[str, int] = {}
    ours = None
    for item in items:
        name, spec = item["metadata"]["name"], item.get("spec") or {}
        part = spec.get("limited") or spec.get("exempt") or {}
        own = int(part.get(key_of(version)) or 0)
        if name == NAME:
            ours = _ours(item, version, own)
        elif own:
            shares[name] = own
            lendable[name] = int(part.get("lendablePercent") or 0)
            if queuing := (part.get("limitResponse") or {}).get("queuing"):
                hands[name] = int(queuing.get("handSize") or DEFAULT_HANDS)
    return Levels(shares, ours, lendable, hands)


def _ours(item: Object, version: str, shares: int) -> ReserveObject:
    meta = item["metadata"]
    noted = (meta.get("annotations") or {}).get(SHARES)
    spec: Object = {key: value for key, value in (item.get("spec") or {}).items() if value is not None}
    edited = ""
    if noted is None:
        edited = "it was not made by carico"
    elif not str(noted).isdecimal() or not _as_written(spec, version, int(noted)):
        edited = f"another client changed it ({noted} shares were ours, now it has {shares})"
    return ReserveObject(str(meta.get("resourceVersion", "")), shares, edited)


def _as_written(spec: Object, version: str, shares: int) -> bool:
    """Whether a spec is what we wrote, perhaps through an older version of the API. One that was written before 1.26
    says nothing of lending; that the level may borrow changes nothing, for no request comes to it."""
    limited = dict(spec.get("limited") or {})
    for key in ("lendablePercent", "borrowingLimitPercent"):
        if limited.get(key) in (None, 0):
            limited.pop(key, None)
    return {**spec, "limited": limited} == {
        "type": "Limited",
        "limited": {key_of(version): shares, "limitResponse": {"type": "Reject"}},
    }


class Reserve:
    """The object, through the API."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._version = ""
        self.owners: list[Object] = []
        """ownerReferences of what we write, once `find_owner` has looked."""

    async def find_owner(self) -> None:
        """The ClusterRole that gives us our rights, where deploy/plane was applied: what is deleted with it cannot
        outlive it. `kubectl delete -k deploy/plane` deletes our account before our Pod, which then cannot delete
        anything. A service with an administrator's kubeconfig has no such role, and no owner."""
        try:
            role = await self._client.get(f"{OWNER_PATH}/{OWNER}")
        except Refused as refused:
            if refused.status not in (403, 404):
                raise
            self.owners = []
            return
        kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
        self.owners = [{**kind, "name": OWNER, "uid": str(role["metadata"]["uid"])}]

    async def version(self) -> str:
        """The newest version of the group that both sides know; raises NoFairness by name."""
        if not self._version:
            try:
                group = await self._client.get(f"/apis/{GROUP}")
            except Refused as refused:
                if refused.status != 404:
                    raise
                raise NoFairness(
                    f"this API server has no group {GROUP} (API Priority and Fairness is off)"
                ) from refused
            served = [str(one.get("version")) for one in group.get("versions") or ()]
            known = [version for version in VERSIONS if version in served]
            if not known:
                raise NoFairness(f"{GROUP}: of its versions {', '.join(served)} none is known here")
            self._version = known[0]
        return self._version

    async def levels(self) -> Levels:
        """Not from the watch cache: one that lags would make our own level look deleted. There are ten of them."""
        version = await self.version()
        try:
            listed = await self._client.get(self._path(version))
        except Refused as refused:
            if refused.status != 404 or not await self._moved(version):
                raise
            return await self.levels()
        return read_levels(listed.get("items") or [], version)

    async def _moved(self, version: str) -> bool:
        """Whether the server does not serve this version any more: it was upgraded while we ran. A 404 then says
        nothing of the object."""
        self._version = ""
        return await self.version() != version

    async def write(self, shares: int, known: ReserveObject | None) -> bool:
        """Give it so many shares; False when another client was faster: read it again."""
        version = await self.version()
        meta: Object = {"name": NAME, "annotations": {SHARES: str(shares)}}
        if self.owners:
            meta["ownerReferences"] = self.owners
        body: Object = {"metadata": meta, "spec": spec_of(version, shares)}
        try:
            if known is None:
                meta["labels"] = {"app.kubernetes.io/managed-by": "carico-plane"}
                kind = {"apiVersion": f"{GROUP}/{version}", "kind": "PriorityLevelConfiguration"}
                await self._client.post(self._path(version), {**kind, **body})
            else:
                meta["resourceVersion"] = known.version
                await self._client.patch(f"{self._path(version)}/{NAME}", body)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
            return False
        return True

    async def remove(self) -> str:
        """Take it back, if it is ours and as we wrote it; in words, what was done."""
        for _ in range(5):
            version = await self.version()
            path = f"{self._path(version)}/{NAME}"
            try:
                ours = _ours_of(await self._client.get(path), version)
                if ours.edited:
                    return f"{NAME} is left alone: {ours.edited}"
                options = {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"resourceVersion": ours.version},
                }
                await self._client.request("DELETE", path, options)
                return f"{NAME} ({ours.shares} shares) is taken back"
            except Refused as refused:
                if refused.status == 404:
                    if await self._moved(version):
                        continue
                    return f"{NAME} is not there"
                if refused.status != 409:
                    raise
        return f"another client keeps changing {NAME}: left alone"

    def _path(self, version: str) -> str:
        return f"/apis/{GROUP}/{version}/prioritylevelconfigurations"


def _ours_of(item: Object, version: str) -> ReserveObject:
    ours = read_levels([item], version).ours
    assert ours is not None
    return ours
