"""A KubeClient on the model of model.py, with a few plain objects (namespaces, secrets, ConfigMaps, Leases) beside."""

import copy
import json
from collections.abc import Mapping
from typing import Any

from carico_agent.burst.steps import Request
from carico_agent.lib.kube.errors import Refused, Unreachable
from tests.burst.model import Cluster, Object, refusal


def refused(status: int, path: str) -> Refused:
    why = {404: "not found", 409: "exists, or was changed"}[status]
    return Refused(status, f"{path} {why}", cause=refusal(status, path))


class FakeClient:
    """Stands where a KubeClient would. `silent`: nothing answers."""

    def __init__(self, cluster: Cluster, minor: str = "20") -> None:
        self.cluster, self.minor, self.silent, self.requests = cluster, minor, False, 0
        self.objects: dict[str, Object] = {
            "/api/v1/namespaces/default": {},
            "/api/v1/namespaces/kube-system": {"metadata": {"uid": f"{cluster.name}-id"}},
        }
        self.generation = 0
        self.posted: list[Object] = []
        self.lists: dict[str, list[Object]] = {}
        self.version = 0

    async def close(self) -> None:
        pass

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Object:
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Object) -> Object:
        return await self.request("POST", path, body)

    async def patch(self, path: str, body: Object) -> Object:
        return await self.request("PATCH", path, body)

    async def delete(self, path: str) -> Object:
        return await self.request("DELETE", path, {})

    async def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Object:
        self.requests += 1
        if self.silent:
            raise Unreachable(f"{self.cluster.name} cannot be reached")
        if path == "/version":
            return {"major": "1", "minor": self.minor}
        if path in self.lists:
            return {"items": copy.deepcopy(self.lists[path])}
        if "/jobs" in path or (path.endswith("/pods") and params and "labelSelector" in params):
            answer = self.cluster.handle(Request(True, method, path, body, dict(params or {})))
            if answer.status >= 300:
                raise refused(answer.status, path)
            return answer.body
        return self._plain(method, path, body or {})

    def _plain(self, method: str, path: str, body: Object) -> Object:
        if path.endswith("/events"):
            self.posted.append(body)
            return body
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise refused(409, path)
        elif path not in self.objects:
            raise refused(404, path)
        if method == "GET":
            return copy.deepcopy(self.objects[path])
        if method == "DELETE":
            return self.objects.pop(path)
        return self._write(method, path, body)

    def _write(self, method: str, path: str, body: Object) -> Object:
        old: dict[str, Any] = self.objects.get(path, {})
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if wanted is not None and wanted != (old.get("metadata") or {}).get("resourceVersion"):
            raise refused(409, path)
        self.version += 1
        kept = json.loads(json.dumps({**old, **body} if method == "PATCH" else body))
        kept["metadata"] = {**(old.get("metadata") or {}), **(body.get("metadata") or {})}
        kept["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = kept
        return copy.deepcopy(kept)
