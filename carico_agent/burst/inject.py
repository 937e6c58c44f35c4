"""A Job with its data steps: what it reads is fetched before its container, what it made is published after. Pure.

    carico.dev/data: model=arpu@latest           the model is at $CARICO_DATA_ARPU when the container starts
    carico.dev/produces: model=saved             the container writes it to $CARICO_OUT_SAVED (a file or a folder)

The Pod becomes a chain: `carico-fetch`, the Job's own container, `carico-publish`. The Job's own container becomes an
init container when it produces something, since only then its exit code decides: the model of a container that failed
is never published, and a Pod succeeds only when its model is. A sidecar could do neither: it does not learn how the
others ended, and the kubelet kills it after the grace period of the Pod.

Only the steps have the credentials of the registry and the node's cache; the Job's own container has neither.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass

from carico_agent.burst.choice import DATA, PRODUCES, Data, parse_data, parse_produces
from carico_agent.burst.data_step import variable
from carico_agent.burst.objects import Object

FETCH, PUBLISH = "carico-fetch", "carico-publish"
VOLUME, CACHE = "carico-data", "carico-cache"
DATA_PATH, CACHE_PATH = "/carico/data", "/carico/cache"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
NOT_IN_INIT = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
"""Fields that an init container may not have: they mean nothing for one that runs to its end."""


@dataclass(frozen=True)
class DataSteps:
    """The registry as the steps see it."""

    registry: str
    endpoint: str = ""
    region: str = ""
    """Of the bucket."""
    secret: str = ""
    """In the Job's namespace, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Empty: the store asks for none."""
    image: str = ""
    node_cache: str = ""
    """Folder of the node in which fetched models are kept. Empty: none is."""

    def arguments(self, step: str, namespace: str) -> list[str]:
        made = ["-m", "carico_agent.burst.data_step", step, "--registry", self.registry, "--namespace", namespace]
        made += ["--endpoint", self.endpoint] if self.endpoint else []
        return made + (["--region", self.region] if self.region else [])


def models_of(job: Object) -> tuple[tuple[Data, ...], tuple[str, ...]]:
    """The models that a Job reads, and those that it makes; raises ValueError."""
    texts = job["metadata"].get("annotations") or {}
    read = tuple(one for one in parse_data(texts.get(DATA, "")) if one.model)
    return read, parse_produces(texts.get(PRODUCES, ""))


def prepared(job: Object, steps: DataSteps | None, data: Iterable[Data] = ()) -> Object:
    """The Job as it runs elsewhere: with its steps, and with the URL of everything that it reads."""
    return with_urls(with_steps(job, steps), {one.name: one.url for one in data})


def with_steps(job: Object, steps: DataSteps | None) -> Object:
    """The Job with its steps. One that has them already is left as it is. Raises ValueError with what is wrong."""
    read, made = models_of(job)
    spec = job["spec"]["template"].get("spec") or {}
    if not (read or made) or _names(spec) & {FETCH, PUBLISH}:
        return job
    if steps is None or not steps.registry:
        raise ValueError("it reads or makes models, and burst.registry names no registry")
    job = deepcopy(job)
    spec, namespace = job["spec"]["template"]["spec"], str(job["metadata"].get("namespace") or "default")
    places = _places(read, made)
    spec["volumes"] = [*(spec.get("volumes") or ()), *_volumes(steps, bool(read))]
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        _add(container, "volumeMounts", {"name": VOLUME, "mountPath": "/carico"})
        for name, where in places:
            _add(container, "env", {"name": name, "value": where})
    if made:
        _work_first(job, spec)
    if read:
        wanted = [f"{one.name}@{one.version}" for one in read]
        cache = ["--cache", CACHE_PATH] if steps.node_cache else []
        fetch = _step(FETCH, [*steps.arguments("fetch", namespace), "--to", DATA_PATH, *cache, *wanted], steps)
        spec["initContainers"] = [fetch, *(spec.get("initContainers") or ())]
    if made:
        paths = [f"{name}={out_path(name)}" for name in made]
        job_name = ["--job", str(job["metadata"].get("name", ""))]
        spec["containers"] = [_step(PUBLISH, [*steps.arguments("publish", namespace), *job_name, *paths], steps)]
    return job


def output(name: str) -> str:
    """
    >>> output("saved")
    'CARICO_OUT_SAVED'
    """
    return variable(name).replace("CARICO_DATA_", "CARICO_OUT_")


def out_path(name: str) -> str:
    return f"/carico/out-{name}"


def _places(read: tuple[Data, ...], made: tuple[str, ...]) -> list[tuple[str, str]]:
    """The variables that say where models are, and where they shall be."""
    found = [(variable(one.name), f"{DATA_PATH}/{one.name}") for one in read]
    found += [(output(name), out_path(name)) for name in made]
    if len({name for name, _ in found}) < len(found):
        raise ValueError(f"{DATA} and {PRODUCES}: two models have one variable: {', '.join(name for name, _ in found)}")
    return found


def with_urls(job: Object, urls: Mapping[str, str]) -> Object:
    """The Job with the URL of what it reads in the environment of every container."""
    if not urls:
        return job
    job = deepcopy(job)
    spec = job["spec"]["template"]["spec"]
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        for name, url in urls.items():
            _add(container, "env", {"name": f"{variable(name)}_URL", "value": url})
    return job


def _work_first(job: Object, spec: Object) -> None:
    """The Job's own container becomes the last init container."""
    if len(spec["containers"]) != 1:
        raise ValueError(f"{PRODUCES}: a Job that makes a model has one container, this one has more")
    if (job["spec"].get("completions") or 1) != 1:
        raise ValueError(f"{PRODUCES}: a Job that makes a model has one completion, this one has more")
    own = spec["containers"][0]
    if found := [field for field in NOT_IN_INIT if field in own]:
        raise ValueError(f"{PRODUCES}: container {own['name']} has {found[0]}, which an init container may not have")
    spec["initContainers"] = [*(spec.get("initContainers") or ()), own]
    meta = job["spec"]["template"].setdefault("metadata", {})
    meta["annotations"] = {**(meta.get("annotations") or {}), "kubectl.kubernetes.io/default-container": own["name"]}


def _step(name: str, arguments: list[str], steps: DataSteps) -> Object:
    mounts: list[Object] = [{"name": VOLUME, "mountPath": "/carico"}, {"name": VOLUME, "mountPath": "/tmp"}]
    mounts[1]["subPath"] = "tmp"
    if steps.node_cache and name == FETCH:
        mounts.append({"name": CACHE, "mountPath": CACHE_PATH})
    if folder := _folder(steps):
        mounts.append({"name": "carico-registry", "mountPath": folder})
    env: list[Object] = [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": steps.secret, "key": key}}}
        for key in (KEYS if steps.secret else ())
    ]
    return {
        "name": name,
        "image": steps.image,
        "command": ["python3"],
        "args": arguments,
        "env": env,
        "volumeMounts": mounts,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _volumes(steps: DataSteps, reads: bool) -> Iterable[Object]:
    yield {"name": VOLUME, "emptyDir": {}}
    if steps.node_cache and reads:
        yield {"name": CACHE, "hostPath": {"path": steps.node_cache, "type": "DirectoryOrCreate"}}
    if folder := _folder(steps):
        yield {"name": "carico-registry", "hostPath": {"path": folder, "type": "Directory"}}


def _folder(steps: DataSteps) -> str:
    """Of a registry that is a folder which every node mounts."""
    return steps.registry.removeprefix("file://") if steps.registry.startswith("file://") else ""


def _add(container: Object, field: str, entry: Object) -> None:
    """Add an entry to a list of a container, in the place of one of its name."""
    others = [one for one in container.get(field) or () if field != "env" or one["name"] != entry["name"]]
    container[field] = [*others, entry]


def _names(spec: Object) -> set[str]:
    return {str(one["name"]) for one in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]}
