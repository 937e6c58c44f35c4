"""What a Job needs at its target beside room: objects it names, and things that cannot be had elsewhere. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from carico_agent.burst.objects import Object
from carico_agent.lib.kube.pods import is_name

KUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue sets `suspend` of Jobs with this label by itself: two who hold one Job would start it behind each other."""


@dataclass(frozen=True, order=True)
class Needed:
    """One object that must exist at the target, by its collection and name."""

    kind: str
    name: str

    def path(self, namespace: str) -> str:
        """
        >>> Needed("namespace", "a").path("a"), Needed("secret", "s").path("a")
        ('/api/v1/namespaces/a', '/api/v1/namespaces/a/secrets/s')
        """
        if self.kind == "namespace":
            return f"/api/v1/namespaces/{self.name}"
        if self.kind in _CLUSTER_WIDE:
            return f"/apis/{_CLUSTER_WIDE[self.kind]}/{self.name}"
        if self.kind in _CLAIMS:
            return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/{_CLAIMS[self.kind]}/{self.name}"
        return f"/api/v1/namespaces/{namespace}/{_COLLECTIONS[self.kind]}/{self.name}"

    def names(self, found: Object) -> list["Needed"]:
        """What the object itself, as it was `found` at the target, needs there: a claim its device classes.

        >>> spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
        >>> Needed("claim template", "gpus").names({"spec": {"spec": spec}})
        [Needed(kind='device class', name='gpu.example.com')]
        """
        if self.kind not in _CLAIMS:
            return []
        spec = found.get("spec") or {}
        devices = ((spec.get("spec") or {}) if self.kind == "claim template" else spec).get("devices") or {}
        return sorted({Needed("device class", name) for one in devices.get("requests") or () for name in _classes(one)})


_COLLECTIONS = {
    "secret": "secrets",
    "config map": "configmaps",
    "volume claim": "persistentvolumeclaims",
    "service account": "serviceaccounts",
}


_CLUSTER_WIDE = {
    "priority class": "scheduling.k8s.io/v1/priorityclasses",
    "runtime class": "node.k8s.io/v1/runtimeclasses",
    "device class": "resource.k8s.io/v1/deviceclasses",
}
_CLAIMS = {"claim": "resourceclaims", "claim template": "resourceclaimtemplates"}
"""Of dynamic resource allocation (1.34 and newer)."""

BY_CLASS = "deviceclass.resource.kubernetes.io/"
"""A resource whose name begins so asks for a device of the class that follows."""


def needed(job: Object, namespace: str) -> list[Needed]:
    """Every object that the Job's Pods name and that is not optional, the namespace first."""
    spec = job["spec"]["template"].get("spec") or {}
    found = {*_of_volumes(spec), *_of_containers(spec), *_of_pod(spec)}
    return [Needed("namespace", namespace), *sorted(found)]


def _of_pod(spec: Object) -> Iterator[Needed]:
    for secret in spec.get("imagePullSecrets") or ():
        if secret.get("name"):  # an API server takes one without a name, and a kubelet looks for none
            yield Needed("secret", secret["name"])
    account = spec.get("serviceAccountName") or "default"
    if account != "default":
        yield Needed("service account", account)
    if spec.get("priorityClassName") and not spec["priorityClassName"].startswith("system-"):
        yield Needed("priority class", spec["priorityClassName"])
    if spec.get("runtimeClassName"):
        yield Needed("runtime class", spec["runtimeClassName"])
    for claim in spec.get("resourceClaims") or ():
        if claim.get("resourceClaimTemplateName"):
            yield Needed("claim template", claim["resourceClaimTemplateName"])
        if claim.get("resourceClaimName"):
            yield Needed("claim", claim["resourceClaimName"])


def _classes(request: Object) -> Iterator[str]:
    """The device class that one request of a claim must have. Of several that would do (`firstAvailable`) none must
    be there."""
    choices = request.get("firstAvailable") or ()
    for one in (request.get("exactly") or {}, *(choices if len(choices) == 1 else ())):
        if one.get("deviceClassName"):
            yield one["deviceClassName"]


def _of_volumes(spec: Object) -> Iterator[Needed]:
    for volume in spec.get("volumes") or ():
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for source in sources:
            secret, config = source.get("secret") or {}, source.get("configMap") or {}
            if secret and not secret.get("optional"):
                yield Needed("secret", secret.get("secretName") or secret.get("name", ""))
            if config and not config.get("optional"):
                yield Needed("config map", config.get("name", ""))
        if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            yield Needed("volume claim", claim)


def _of_containers(spec: Object) -> Iterator[Needed]:
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        for resource in (container.get("resources") or {}).get("requests") or {}:
            if resource.startswith(BY_CLASS):
                yield Needed("device class", resource.removeprefix(BY_CLASS))
        sources = [
            *(container.get("envFrom") or ()),
            *(one.get("valueFrom") or {} for one in container.get("env") or ()),
        ]
        for source in sources:
            secret = source.get("secretRef") or source.get("secretKeyRef") or {}
            config = source.get("configMapRef") or source.get("configMapKeyRef") or {}
            if secret and not secret.get("optional"):
                yield Needed("secret", secret.get("name", ""))
            if config and not config.get("optional"):
                yield Needed("config map", config.get("name", ""))


def _wants_the_node(spec: Object) -> str:
    """Why a Pod has access to its node. Jobs of another cluster do not get such access at a target."""
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            return f"{name}: it wants the node itself, not room on it"
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        if (container.get("securityContext") or {}).get("privileged"):
            return f"container {container['name']} is privileged: it wants the node itself, not room on it"
    return ""


def cannot_leave(job: Object, host_paths: tuple[str, ...] = ()) -> str:
    """Why this Job must stay at home wherever it could go, or nothing. `host_paths`: folders the target's nodes have.

    >>> cannot_leave({"metadata": {}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}})
    'container c has no requests: the room it needs is unknown'
    >>> whole = {"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "1"}}}
    >>> cannot_leave({"metadata": {}, "spec": {"template": {"spec": whole}}})
    ''
    """
    spec = job["spec"]["template"].get("spec") or {}
    whole = (spec.get("resources") or {}).get("requests")  # of all containers together (1.34 and newer)
    for container in () if whole else spec.get("containers") or ():
        if not (container.get("resources") or {}).get("requests"):
            return f"container {container['name']} has no requests: the room it needs is unknown"
    for volume in spec.get("volumes") or ():
        path = (volume.get("hostPath") or {}).get("path")
        if path and not any(path == known or path.startswith(known.rstrip("/") + "/") for known in host_paths):
            return f"volume {volume['name']} is hostPath {path}, which the target does not offer (host_paths)"
    for one in needed(job, "n"):
        if not is_name(one.name):
            return f"{one.kind} {one.name[:100]!r} is no name"
    if why := _wants_the_node(spec):
        return why
    if job["spec"].get("manualSelector"):
        return "it has a selector of its own, so its Pods cannot be distinguished from others"
    if KUEUE in (job["metadata"].get("labels") or {}):
        return 'Kueue holds and starts it; engine = "multikueue" is for such Jobs'
    if job["spec"].get("managedBy") not in (None, "kubernetes.io/job-controller"):
        return f"it is managed by {job['spec']['managedBy']}"
    return ""
