"""LIST, then WATCH without end: the state of one resource, kept up to date.

Resumes where it was after an interruption; lists again only when the server has forgotten that point (410). Objects
are reduced by `pick` as they arrive, so that a list of 5,000 nodes does not stay in memory as such.

The first list may be as old as the API server's watch cache (resourceVersion=0), a later one must not be older than
what we have seen (resourceVersionMatch=NotOlderThan, 1.19 and newer). Both are answered from that cache; a list
without a version makes the API server read all Pods of the cluster from etcd, whatever the field selector. The watch
begins at the version of the list, so what the cache did not have yet arrives as events.

An etcd that was restored from a backup is behind what we have seen. A watch from a version of the future is accepted
and shows nothing until the store has come that far, which may take hours. So a watch that broke off asks first how far
the store is: a list of one name that does not exist, which costs the API server one read of one key.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused, Unreachable
from carico_agent.lib.kube.health import Health
from carico_agent.lib.net.times import boottime_s
from carico_agent.lib.supervise.backoff import Backoff

log = logging.getLogger(__name__)

T = TypeVar("T")
MIN_S = 1.0
"""A watch that ends sooner is not opened again before [s]."""


NO_SUCH_NAME = {"fieldSelector": "metadata.name=carico-no-such-name", "limit": "1"}


def is_older(version: str, than: str) -> bool:
    """Whether a resourceVersion is before another one. They are numbers (since 1.35 by contract); what is none is not.

    >>> is_older("99", "100"), is_older("100", "99"), is_older("a", "99")
    (True, False, False)
    """
    return version.isdigit() and than.isdigit() and int(version) < int(than)


def _of_one_namespace(path: str) -> str:
    """The same objects of the namespace `default`: a name is a key of etcd within a namespace only.

    >>> _of_one_namespace("/api/v1/pods"), _of_one_namespace("/apis/batch/v1/jobs"), _of_one_namespace("/api/v1/nodes")
    ('/api/v1/namespaces/default/pods', '/apis/batch/v1/namespaces/default/jobs', '/api/v1/nodes')
    """
    root, _, kind = path.rpartition("/")
    return path if kind == "nodes" or "/namespaces/" in path else f"{root}/namespaces/default/{kind}"


class ResourceWatch(Generic[T]):
    """Calls `snapshot` with everything, then `event` per change; a new snapshot may come at any time.

    `event(gone, thing)`: gone is True for a deleted object, or one that left the selection.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        pick: Callable[[Object], T],
        snapshot: Callable[[list[T]], None],
        event: Callable[[bool, T], None],
        health: Health,
        select: str = "",
        labels: str = "",
    ) -> None:
        """`select` and `labels` are a field and a label selector."""
        self._client, self._path, self._pick = client, path, pick
        self._snapshot, self._event, self._health = snapshot, event, health
        self._select = {"fieldSelector": select} if select else {}
        if labels:
            self._select["labelSelector"] = labels
        self._whole = True  # the last watch ran for as long as it should
        self._version = ""  # where the watch resumes; empty: list first
        self._seen = "0"  # the newest version that we know of; empty: the server no longer has it
        self._backoff = Backoff(first_s=1.0, factor=2.0, max_s=30.0)
        self.lists = 0
        self.synced = asyncio.Event()
        self._lost_s: float | None = -float("inf")  # None while it is open

    def begin_again(self) -> None:
        """List first, whatever was seen: the client leads to another cluster now."""
        self._version, self._seen = "", "0"
        self.synced.clear()

    def closed_s(self) -> float:
        """For how long this watch has not been open [s]; 0 while it is."""
        return 0.0 if self._lost_s is None else boottime_s() - self._lost_s

    async def run(self) -> None:
        """Until it is cancelled. Failures are reported to `health` and tried again."""
        failures = 0
        while True:
            try:
                if self._version and not self._whole:
                    await self._check_restored()
                if not self._version:
                    await self._list()
                await self._follow()
                failures = 0
            except Unreachable as error:
                self._health.bad(self._path, error)  # the client itself makes us wait
            except KubeError as error:
                if isinstance(error, Refused) and error.gone:
                    self._seen, self._version = self._version, ""
                    continue
                if isinstance(error, Refused) and error.status == 504:  # "Too large resource version": another server
                    self._seen = ""
                failures += 1
                self._health.bad(self._path, error)
                await asyncio.sleep(self._backoff.delay_s(failures))

    async def _list(self) -> None:
        things: list[T] = []
        meta = await self._client.items(
            self._path, {**self._select, **self._not_older()}, lambda item: things.append(self._pick(item))
        )
        self._version = self._seen = meta["resourceVersion"]
        self.lists += 1
        self._snapshot(things)
        self.synced.set()

    def _not_older(self) -> dict[str, str]:
        if self._seen in ("", "0"):
            return {"resourceVersion": self._seen} if self._seen else {}
        return {"resourceVersion": self._seen, "resourceVersionMatch": "NotOlderThan"}

    async def _check_restored(self) -> None:
        """List again if the server's store is behind what we have seen."""
        try:
            found = await self._client.get(_of_one_namespace(self._path), NO_SUCH_NAME)
        except Refused:  # not for us to ask: as before, the watch shows what it shows
            return
        if is_older(found["metadata"]["resourceVersion"], self._version):
            log.warning("%s: the API server's store was set back, as by a restored backup; listing again", self._path)
            self._version = self._seen = ""

    async def _follow(self) -> None:
        opened_s, lasts_s = boottime_s(), random.randint(240, 300)
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(lasts_s),
            **self._select,
        }
        self._whole = False
        try:
            async for line in self._client.lines(self._path, params, self._opened):
                self._take(line)
        finally:
            if self._lost_s is None:
                self._lost_s = boottime_s()
        self._whole = boottime_s() - opened_s >= lasts_s - MIN_S
        await asyncio.sleep(max(0.0, MIN_S - (boottime_s() - opened_s)))

    def _take(self, line: dict[str, Any]) -> None:
        kind, thing = line.get("type"), line.get("object") or {}
        if kind == "ERROR":
            raise Refused(int(thing.get("code") or 500), f"watch {self._path}: {thing.get('message')}")
        self._version = thing["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._event(kind == "DELETED", self._pick(thing))

    def _opened(self) -> None:
        self._lost_s = None
        self._health.good(self._path)
