"""The clusters of model.py behind HTTP, with LIST and WATCH, a Job controller, a scheduler and kubelets that act by
themselves: the whole service runs against it in seconds, without a control plane."""

import asyncio
import copy
import json
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from carico_agent.burst.steps import Request
from tests.burst.model import Cluster, Object, refusal

PENDING = "status.phase!=Succeeded,status.phase!=Failed"


class SmallApi:
    """One cluster with `nodes` × `places`; Pods run for `work_s`."""

    def __init__(self, cluster: Cluster, nodes: int, places: int, work_s: float) -> None:
        self.cluster, self.work_s = cluster, work_s
        self.nodes = {f"{cluster.name}-{n}": self._node(f"{cluster.name}-{n}", places) for n in range(nodes)}
        self.plain: dict[str, Object] = {}
        self.events: list[Object] = []
        self.succeeded: dict[str, int] = {}
        self.started: list[str] = []
        self.version = 0
        self._snapshots: dict[tuple[str, int], dict[str, str]] = {}
        self._began_s: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.ServerRunner | None = None
        self.port = 0

    @staticmethod
    def _node(name: str, places: int) -> Object:
        have = {"cpu": "64", "memory": "64Gi", "pods": str(places)}
        ready = {"type": "Ready", "status": "True"}
        return {
            "metadata": {"name": name, "uid": name},
            "spec": {},
            "status": {"allocatable": have, "conditions": [ready]},
        }

    async def __aenter__(self) -> "SmallApi":
        await self._listen()
        self._tasks.append(asyncio.create_task(self._live()))
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self.stop_listening()

    async def _listen(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]

    async def stop_listening(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def listen_again(self) -> None:
        await self._listen()

    def kubeconfig(self, folder: Path) -> str:
        path = folder / f"{self.cluster.name}.json"
        path.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                    "contexts": [{"name": "c", "context": {"cluster": "k"}}],
                }
            )
        )
        return str(path)

    # ---- those who act by themselves

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            cluster = self.cluster
            cluster.collect_garbage()
            for name in list(cluster.pods):
                cluster.kubelet(name)
            for uid in list(cluster.history):
                cluster.sync(uid, 1000)
            self._schedule()
            self._run_pods()

    def _schedule(self) -> None:
        taken = [pod["spec"].get("nodeName") for pod in self.cluster.pods.values() if not _ended(pod)]
        for pod in self.cluster.pods.values():
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            free = [n for n, node in self.nodes.items() if taken.count(n) < int(node["status"]["allocatable"]["pods"])]
            if free:
                pod["spec"]["nodeName"] = free[0]
                taken.append(free[0])
            elif "conditions" not in pod["status"]:
                since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                waits = {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "lastTransitionTime": since,
                }
                pod["status"]["conditions"] = [waits]

    def _run_pods(self) -> None:
        for name, pod in list(self.cluster.pods.items()):
            if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                self.cluster.start(name)
                self._began_s[name] = time.monotonic()
                self.started.append(self.cluster.origin(name))
            if name in self.cluster.running and time.monotonic() - self._began_s[name] > self.work_s:
                if pod["metadata"].get("deletionTimestamp"):
                    continue
                origin = self.cluster.origin(name)
                self.cluster.finish(name, True)
                self.succeeded[origin] = self.succeeded.get(origin, 0) + 1

    # ---- HTTP

    def _collection(self, path: str, params: Any) -> dict[str, Object] | None:
        kind = path.rpartition("/")[2]
        if kind == "nodes":
            return self.nodes
        if kind not in ("jobs", "pods"):
            return None
        found = dict(getattr(self.cluster, kind))
        if kind == "pods" and params.get("fieldSelector") == PENDING:
            found = {name: pod for name, pod in found.items() if not _ended(pod)}
        if params.get("fieldSelector") == "status.phase=Failed":
            found = {}
        for pair in filter(None, params.get("labelSelector", "").split(",")):
            key, _, value = pair.partition("=")
            labels = {n: t["metadata"].get("labels") or {} for n, t in found.items()}
            found = {n: t for n, t in found.items() if key in labels[n] and (not value or labels[n][key] == value)}
        return found

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, params = request.path, dict(request.query)
        if path == "/version":
            return web.json_response({"major": "1", "minor": "20"})
        if request.method == "GET" and (things := self._collection(path, params)) is not None:
            return await self._watch(request, path, params) if "watch" in params else self._list(path, params, things)
        body = await request.json() if request.can_read_body else {}
        if "/jobs" in path:
            answer = self.cluster.handle(Request(True, request.method, path, body, params))
            return web.json_response(answer.body or refusal(answer.status, path), status=answer.status)
        return self._plain(request.method, path, body)

    def _list(self, path: str, params: Any, things: dict[str, Object]) -> web.Response:
        self.version += 1
        self._snapshots[path + str(sorted(_selectors(params))), self.version] = _texts(things)
        items = [copy.deepcopy(thing) for thing in things.values()]
        kind = path.rpartition("/")[2].removesuffix("s").capitalize() + "List"
        return web.json_response({"kind": kind, "metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(self, request: web.BaseRequest, path: str, params: Any) -> web.StreamResponse:
        known = self._snapshots.get((path + str(sorted(_selectors(params))), int(params["resourceVersion"])))
        if known is None:
            return web.json_response({"message": "too old"}, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await asyncio.sleep(0.03)
            now = _texts(self._collection(path, params) or {})
            changed = [("MODIFIED", text) for name, text in now.items() if known.get(name) != text]
            changed += [("DELETED", text) for name, text in known.items() if name not in now]
            known = now
            for workload, text in changed:
                thing = json.loads(text)
                thing["metadata"].setdefault("resourceVersion", "0")
                await response.write(json.dumps({"type": workload, "object": thing}).encode() + b"\n")

    def _plain(self, method: str, path: str, body: Object) -> web.Response:
        if path.endswith("/events"):
            self.events.append(body)
            return web.json_response(body)
        if path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
            return web.json_response({"metadata": {"uid": f"{self.cluster.name}-id"}})
        if path.endswith("/workloads") and method == "GET":
            return web.json_response({"items": [one for key, one in self.plain.items() if "/workloads/" in key]})
        key = f"{path}/{body['metadata']['name']}" if method == "POST" else path.removesuffix("/status")
        old = self.plain.get(key)
        if old is None and method != "POST":
            return web.json_response(refusal(404, path), status=404)
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if method == "GET":
            return web.json_response(old)
        if (method == "POST" and old) or (wanted and wanted != (old or {})["metadata"]["resourceVersion"]):
            return web.json_response(refusal(409, path), status=409)
        self.version += 1
        kept = {**(old or {}), **body}
        if path.endswith("/status"):
            kept["status"] = {**(old or {}).get("status", {}), **body["status"]}
        kept["metadata"] = {**(old or {}).get("metadata", {}), **body["metadata"], "resourceVersion": str(self.version)}
        self.plain[key] = kept
        return web.json_response(kept)


def _selectors(params: Any) -> list[tuple[str, str]]:
    return [(key, value) for key, value in params.items() if key.endswith("Selector")]


def _texts(things: dict[str, Object]) -> dict[str, str]:
    return {name: json.dumps(thing) for name, thing in things.items()}


def _ended(pod: Object) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
