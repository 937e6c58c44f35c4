"""As much of an API server as bindings need, in memory: Leases with their versions, Nodes, Bindings, Pods.

Every request waits `pause()` on its way in and on its way out, so that writes cross each other, and `lose` of all
answers never arrive. Watchers receive every change in order, and late. The real server runs the same scenes in
test_burst.py; here there are hundreds of them.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import Refused, Unreachable

Pause = Callable[[], Awaitable[None]]


async def _at_once() -> None:
    await asyncio.sleep(0)


class SmallServer:
    """Stands where a Client would."""

    def __init__(self, pause: Pause = _at_once, drawn: random.Random | None = None) -> None:
        self.pause = pause
        self.lose = 0.0
        self._random = drawn or random.Random(0)
        self.leases: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.nodes: dict[str, Object] = {}
        self.bound: list[tuple[str, str]] = []
        self.version = 0
        self.webhook: Callable[[str, str, str], Awaitable[str | None]] | None = None  # a webhook: Pod, UID, node
        self.watchers: list[Callable[[Object], None]] = []
        self.lease_watchers: list[Callable[[Object], None]] = []
        self.requests: list[str] = []
        """"GET leases" and so on."""

    async def get(self, path: str, params: Object | None = None) -> Object:
        self.requests.append(f"GET {'leases' if '/leases' in path else 'pods'}")
        await self.pause()
        name = path.rpartition("/")[2]
        if params is not None:
            name = params["fieldSelector"].partition("=")[2]
            found: Object = {"items": [self.pods.get(name) or _pod(name)]}
        elif name in self.leases:
            found = self.leases[name]
        else:
            raise Refused(404, "not found")
        return await self._answer(found)

    async def _answer(self, found: Object) -> Object:
        await self.pause()
        if self._random.random() < self.lose:
            raise Unreachable("the answer was lost")
        return found

    async def post(self, path: str, body: Object) -> Object:
        self.requests.append(f"POST {path.rpartition('/')[2]}")
        await self.pause()
        meta = body["metadata"]
        if path.endswith("/binding"):
            await self.bind(meta["uid"], body["target"]["name"])
            return await self._answer({})
        if meta["name"] in self.leases:
            raise Refused(409, "exists")
        return await self._store(self.leases, meta["name"], body)

    async def patch(self, path: str, body: Object) -> Object:
        self.requests.append(f"PATCH {'leases' if '/leases' in path else 'nodes'}")
        await self.pause()
        if "/nodes/" in path:
            return await self._store(self.nodes, path.split("/")[-2], body)
        name = path.rpartition("/")[2]
        if name not in self.leases:
            raise Refused(404, "not found")
        old = self.leases[name]
        newest = old["metadata"]["resourceVersion"]
        if body["metadata"].get("resourceVersion", newest) != newest:
            await self.pause()
            raise Refused(409, "conflict")
        notes = {**(old["metadata"].get("annotations") or {}), **body["metadata"].get("annotations", {})}
        meta = {**old["metadata"], "annotations": {key: text for key, text in notes.items() if text is not None}}
        spec = {**(old.get("spec") or {}), **(body.get("spec") or {})}
        return await self._store(self.leases, name, {**old, "metadata": meta, "spec": spec})

    async def bind(self, uid: str, node: str) -> None:
        if self.webhook is not None and (why := await self.webhook(uid, uid, node)):
            raise Refused(409, why)
        self.bound.append((uid, node))
        pod = self.pods.setdefault(uid, _pod(uid))
        if pod["spec"].get("nodeName"):
            raise Refused(409, f"pod {uid} is already assigned to node")
        self._change(uid, {**pod, "spec": {**pod["spec"], "nodeName": node}})

    def end(self, uid: str) -> None:
        self._change(uid, {**self.pods[uid], "status": {"phase": "Succeeded"}})

    def _change(self, uid: str, pod: Object) -> None:
        self.version += 1
        self.pods[uid] = pod
        for receive in self.watchers:
            receive(pod)

    async def _store(self, where: dict[str, Object], name: str, body: Object) -> Object:
        self.version += 1
        kept: Any = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": str(self.version)}}
        where[name] = kept
        for receive in self.lease_watchers if where is self.leases else self.watchers:
            receive(kept)
        return await self._answer(kept)


def _pod(uid: str) -> Object:
    """Its name is its UID."""
    return {"metadata": {"uid": uid, "name": uid}, "spec": {}, "status": {"phase": "Pending"}}
