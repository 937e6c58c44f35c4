"""A plain synchronous client of a private API server, independent of the one under test: objects made and removed."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from lab.support.waiting import wait_for

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class AdminError(Exception):
    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status} {body[:300]}")
        self.status = status


class Admin:
    """All rights, unless another token is given."""

    def __init__(self, server: str, ca: Path, token: str = "admin-token") -> None:
        self.server, self.token = server, token
        self._tls = ssl.create_default_context(cafile=str(ca))

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.server + path,
            data,
            method=method,
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AdminError(error.code, error.read().decode()) from error
        return json.loads(text) if text[:1] in (b"{", b"[") else text.decode()

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def post(self, path: str, body: Any) -> Any:
        return self.request("POST", path, body)

    def merge(self, path: str, body: Any) -> Any:
        return self.request("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str) -> Any:
        return self.request("DELETE", path)

    # ---- objects

    def agent_token(self, node: str, expires_s: int = 600) -> str:
        """Of the agents' service account, bound to this node as a DaemonSet's are: what `kubectl -n carico create token
        carico-agent --bound-object-kind Node --bound-object-name NODE` prints."""
        bound = {"kind": "Node", "apiVersion": "v1", "name": node, "uid": self.node(node)["metadata"]["uid"]}
        request = {"spec": {"expirationSeconds": expires_s, "boundObjectRef": bound}}
        answer = self.post("/api/v1/namespaces/carico/serviceaccounts/carico-agent/token", request)
        return str(answer["status"]["token"])

    def node(self, name: str) -> Any:
        return self.get(f"/api/v1/nodes/{name}")

    def add_node(self, name: str, cpus: int = 4, pods: int = 110) -> None:
        have = {"cpu": str(cpus), "memory": "16Gi", "pods": str(pods)}
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "",
            "lastHeartbeatTime": None,
            "lastTransitionTime": None,
        }
        self.post(
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"capacity": have, "allocatable": have, "conditions": [ready]},
            },
        )

    def add_pod(self, name: str, places: int = 1, scheduler: str = "default-scheduler", **extra: Any) -> str:
        """A Pod that asks for `places` of carico.dev/pods (0: none). Returns its UID."""
        resources = {"limits": {"carico.dev/pods": str(places)}, "requests": {"carico.dev/pods": str(places)}}
        container = {"name": "c", "image": "pause", **({"resources": resources} if places else {})}
        pod = self.post(
            "/api/v1/namespaces/default/pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {
                    "containers": [container],
                    "schedulerName": scheduler,
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": False,
                    **extra,
                },
            },
        )
        return str(pod["metadata"]["uid"])

    def pods(self) -> list[Any]:
        return list(self.get("/api/v1/namespaces/default/pods")["items"])

    def bound(self) -> dict[str, int]:
        """Pods bound and not finished, per node."""
        count: dict[str, int] = {}
        for pod in self.pods():
            if (node := pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                count[node] = count.get(node, 0) + 1
        return count

    def phase(self, name: str, phase: str) -> None:
        self.merge(f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"phase": phase}})

    def clear(self) -> None:
        """No Pods, no nodes, no leases, nobody at the webhook, no policy that a test has applied."""
        self.delete(HOOKS)
        self._clear_policies()
        self.delete("/apis/coordination.k8s.io/v1/namespaces/carico/leases")
        self.request("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
        self.delete("/api/v1/nodes")
        wait_for(lambda: not self.pods(), "the Pods are gone")

    def _clear_policies(self) -> None:
        """Those of all versions that this server has: a policy that stays would judge the next test's requests."""
        kinds = ("validatingadmissionpolic", "mutatingadmissionpolic")
        for version in ("v1", "v1beta1"):
            root = f"/apis/admissionregistration.k8s.io/{version}"
            try:
                names = [one["name"] for one in self.get(root)["resources"]]
            except AdminError as error:
                if error.status != 404:
                    raise
                continue
            for name in names:
                if name.startswith(kinds) and "/" not in name:
                    self.delete(f"{root}/{name}")
