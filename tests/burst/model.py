"""Two clusters in memory: as much of an API server, a Job controller, a scheduler and kubelets as a move meets.

Nothing happens by itself: a test says which part acts next, so every order can be tried. The Job controller is the one
of Kubernetes 1.20: it works on a cached Job that may be old, and writes the status onto the newest one unguarded. With
`suspends` it is that of 1.22 and newer, which knows `suspend` (and would write guarded; unguarded is harder on us).
"""

import copy
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from carico_agent.burst.seal import Seal
from carico_agent.burst.steps import Request, ServerAnswer

Object = dict[str, Any]

SEAL = Seal(b"key of the tests".ljust(32))


def refusal(status: int, path: str) -> Object:
    """An API server's Status about the object of this path."""
    parts = path.removesuffix("/status").split("/")
    group = parts[2] if parts[1] == "apis" else ""
    details = {"name": parts[-1], "kind": parts[-2], **({"group": group} if group else {})}
    reason = {404: "NotFound", 409: "Conflict"}[status]
    return {"kind": "Status", "apiVersion": "v1", "reason": reason, "details": details, "code": status}


@dataclass
class Cluster:
    """One cluster. `jobs` and `pods` are by namespace/name."""

    name: str
    suspends: bool = False
    jobs: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    history: dict[str, list[Object]] = field(default_factory=dict)
    """Every version of every Job by UID: what a cache may still hold."""
    cached: dict[str, int] = field(default_factory=dict)
    """Up to which of them the controller has read."""
    running: set[str] = field(default_factory=set)
    """UIDs of Pods whose containers run."""
    objects: dict[str, Object] = field(default_factory=dict)
    """ConfigMaps and Secrets by path."""
    version: int = 0
    made: "itertools.count[int]" = field(default_factory=itertools.count)

    # ---- the API server

    def handle(self, request: Request) -> ServerAnswer:
        parts = request.path.split("/")
        if parts[-1] == "pods":
            return self._list_pods(request)
        if parts[1] == "api":
            return self._plain(request)
        if request.method == "POST":
            return self._post(f"{parts[5]}/{(request.body or {})['metadata']['name']}", request.body or {})
        key = f"{parts[5]}/{parts[7]}"
        if key not in self.jobs:
            return ServerAnswer(404)
        if request.method == "GET":
            return ServerAnswer(200, copy.deepcopy(self.jobs[key]))
        if request.method == "PATCH":
            return self._patch(key, request.body or {}, parts[-1] == "status")
        return self._delete(key, request.body or {})

    def _list_pods(self, request: Request) -> ServerAnswer:
        wanted = dict(pair.split("=") for pair in request.params["labelSelector"].split(","))
        found = [p for p in self.pods.values() if wanted.items() <= p["metadata"]["labels"].items()]
        return ServerAnswer(200, {"kind": "PodList", "items": copy.deepcopy(found)})

    def _plain(self, request: Request) -> ServerAnswer:
        """A ConfigMap or a Secret."""
        body = copy.deepcopy(request.body or {})
        path = f"{request.path}/{body['metadata']['name']}" if request.method == "POST" else request.path
        old = self.objects.get(path)
        if (old is None) != (request.method == "POST"):
            return ServerAnswer(404 if old is None else 409)
        if request.method == "GET":
            return ServerAnswer(200, copy.deepcopy(self.objects[path]))
        if request.method == "DELETE":
            return ServerAnswer(200, self.objects.pop(path))
        self.version += 1
        if old is not None:
            if body["metadata"].pop("resourceVersion", None) != old["metadata"]["resourceVersion"]:
                return ServerAnswer(409)
            old = copy.deepcopy(old)
            _merge(old, body)
            body = old
        body["metadata"] |= {"resourceVersion": str(self.version), "uid": f"{self.name}-o{self.version}"}
        self.objects[path] = body
        return ServerAnswer(200, copy.deepcopy(body))

    def _post(self, key: str, body: Object) -> ServerAnswer:
        if key in self.jobs:
            return ServerAnswer(409)
        uid = f"{self.name}-{next(self.made)}"
        job = copy.deepcopy(body)
        job["kind"], job["metadata"]["uid"] = "Job", uid
        if not self.suspends:
            job["spec"].pop("suspend", None)  # a server drops what it does not know
        job.setdefault("status", {})
        job["spec"]["selector"] = {"matchLabels": {"controller-uid": uid}}
        meta = job["spec"]["template"].setdefault("metadata", {})
        meta["labels"] = {**(meta.get("labels") or {}), "controller-uid": uid}
        self._store(key, job)
        return ServerAnswer(201, copy.deepcopy(self.jobs[key]))

    def _patch(self, key: str, body: Object, status: bool) -> ServerAnswer:
        job = copy.deepcopy(self.jobs[key])
        given = copy.deepcopy(body)
        version = given.get("metadata", {}).pop("resourceVersion", None)
        if version is not None and version != job["metadata"]["resourceVersion"]:
            return ServerAnswer(409)
        if status:
            _merge(job["status"], given["status"])
        else:
            _merge(job["metadata"], given.get("metadata") or {})
            _merge(job["spec"], given.get("spec") or {})
            if not self.suspends:
                job["spec"].pop("suspend", None)
        self._store(key, job)
        self._sweep(key)
        return ServerAnswer(200, copy.deepcopy(self.jobs.get(key, job)))

    def _delete(self, key: str, options: Object) -> ServerAnswer:
        job = copy.deepcopy(self.jobs[key])
        wanted = options.get("preconditions") or {}
        meta = job["metadata"]
        if wanted.get("uid", meta["uid"]) != meta["uid"]:
            return ServerAnswer(409)
        if wanted.get("resourceVersion", meta["resourceVersion"]) != meta["resourceVersion"]:
            return ServerAnswer(409)
        meta["deletionTimestamp"] = "now"
        if options.get("propagationPolicy") == "Foreground":
            meta["finalizers"] = [*(meta.get("finalizers") or ()), "foregroundDeletion"]
        self._store(key, job)
        self._sweep(key)
        return ServerAnswer(200, {"kind": "Status"} if key not in self.jobs else copy.deepcopy(self.jobs[key]))

    def _store(self, key: str, job: Object) -> None:
        self.version += 1
        job["metadata"]["resourceVersion"] = str(self.version)
        self.jobs[key] = job
        self.history.setdefault(job["metadata"]["uid"], []).append(copy.deepcopy(job))

    def _sweep(self, key: str) -> None:
        meta = self.jobs[key]["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            del self.jobs[key]

    # ---- the others

    def collect_garbage(self) -> None:
        """Pods of Jobs that are gone or being deleted in the foreground; then those Jobs."""
        for key, job in list(self.jobs.items()):
            if "foregroundDeletion" in (job["metadata"].get("finalizers") or ()):
                mine = self._pods_of(job["metadata"]["uid"])
                for pod in mine:
                    self._end(pod)
                if not self._pods_of(job["metadata"]["uid"]):
                    job = copy.deepcopy(job)
                    job["metadata"]["finalizers"].remove("foregroundDeletion")
                    self._store(key, job)
                    self._sweep(key)
        alive = {job["metadata"]["uid"] for job in self.jobs.values()}
        for path, found in list(self.objects.items()):
            owners = {one["uid"] for one in found["metadata"].get("ownerReferences") or ()}
            if owners and not owners & alive:
                del self.objects[path]
        for pod in list(self.pods.values()):
            if pod["metadata"]["labels"]["controller-uid"] not in alive:
                self._end(pod)

    def _pods_of(self, uid: str) -> list[Object]:
        return [pod for pod in self.pods.values() if pod["metadata"]["labels"]["controller-uid"] == uid]

    def _end(self, pod: Object) -> None:
        """Delete a Pod: at once if no kubelet has it or it has ended, else its kubelet must stop it first."""
        pod["metadata"]["deletionTimestamp"] = "now"
        if not pod["spec"].get("nodeName") or pod["status"]["phase"] in ("Succeeded", "Failed"):
            self.pods.pop(pod["metadata"]["name"], None)

    def sync(self, uid: str, forward: int = 0) -> None:
        """The Job controller, with a cache that first moves `forward` versions (never back)."""
        versions = self.history[uid]
        at = min(len(versions) - 1, self.cached.get(uid, 0) + forward)
        self.cached[uid] = at
        job = versions[at]
        meta, spec, old = job["metadata"], job["spec"], job["status"]
        key = f"{meta['namespace']}/{meta['name']}"
        if meta.get("deletionTimestamp") or _finished(job) or key not in self.jobs:
            return
        if self.jobs[key]["metadata"]["uid"] != uid:
            return
        pods = self._pods_of(uid)
        count = {phase: sum(p["status"]["phase"] == phase for p in pods) for phase in ("Succeeded", "Failed")}
        active = [p for p in pods if p["status"]["phase"] in ("Pending", "Running")]
        active = [p for p in active if not p["metadata"].get("deletionTimestamp")]
        status: Object = {"succeeded": count["Succeeded"], "failed": count["Failed"]}
        need = spec.get("completions", 1)
        if count["Failed"] > spec.get("backoffLimit", 6):
            wanted, status["conditions"] = 0, [{"type": "Failed", "status": "True"}]
        else:
            wanted = 0 if spec.get("suspend") else min(spec["parallelism"], need - count["Succeeded"])
            status["conditions"] = _suspended(job)
        for pod in active[wanted:]:
            self._end(pod)
        for _ in range(wanted - len(active)):
            self._make_pod(job)
        status["active"] = wanted
        if count["Succeeded"] >= need:
            status["conditions"] = [{"type": "Complete", "status": "True"}]
        if {k: v for k, v in status.items() if v} != {k: v for k, v in old.items() if v}:
            newest = copy.deepcopy(self.jobs[key])
            newest["status"] = status
            self._store(key, newest)

    def _make_pod(self, job: Object) -> None:
        name = f"pod-{next(self.made)}"
        labels = dict(job["spec"]["template"]["metadata"]["labels"])
        self.pods[name] = {
            "metadata": {
                "name": name,
                "uid": f"{self.name}-{name}",
                "namespace": job["metadata"]["namespace"],
                "labels": labels,
                "ownerReferences": [{"kind": "Job", "uid": job["metadata"]["uid"], "controller": True}],
            },
            "spec": copy.deepcopy(job["spec"]["template"].get("spec") or {}),
            "status": {"phase": "Pending"},
        }

    def bind(self, name: str) -> None:
        pod = self.pods[name]
        if not pod["metadata"].get("deletionTimestamp"):
            pod["spec"]["nodeName"] = "node"

    def start(self, name: str) -> None:
        pod = self.pods[name]
        if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
            pod["status"]["phase"] = "Running"
            self.running.add(name)

    def finish(self, name: str, well: bool) -> bool:
        """The containers end by themselves; False when they do not run."""
        if name not in self.running:
            return False
        self.running.discard(name)
        self.pods[name]["status"]["phase"] = "Succeeded" if well else "Failed"
        return True

    def kubelet(self, name: str) -> None:
        """Stop a Pod that is being deleted."""
        if self.pods[name]["metadata"].get("deletionTimestamp"):
            self.running.discard(name)
            del self.pods[name]

    def origin(self, pod: str) -> str:
        """Of which home Job this Pod is."""
        labels = self.pods[pod]["metadata"]["labels"]
        return str(labels.get("carico.dev/burst-origin") or labels["controller-uid"])


def _finished(job: Object) -> bool:
    return any(one["type"] in ("Complete", "Failed") for one in job["status"].get("conditions") or ())


def _suspended(job: Object) -> list[Object]:
    """Written when it is suspended for the first time, and turned to False when it goes on."""
    if job["spec"].get("suspend"):
        return [{"type": "Suspended", "status": "True"}]
    before = any(one["type"] == "Suspended" for one in job["status"].get("conditions") or ())
    return [{"type": "Suspended", "status": "False"}] if before else []


def _merge(into: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


CONTAINER: Object = {"name": "c", "resources": {"requests": {"cpu": "1"}}}


def job(name: str, parallelism: int = 1, completions: int = 1, backoff: int = 6) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"carico.dev/burst": "yes"}},
        "spec": {
            "parallelism": parallelism,
            "completions": completions,
            "backoffLimit": backoff,
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [CONTAINER]}},
        },
    }


def ledger(cluster: Cluster, name: str) -> Object:
    text = cluster.jobs[f"default/{name}"]["metadata"].get("annotations", {}).get("carico.dev/burst-ledger", "{}")
    value: Object = json.loads(text)
    return value
