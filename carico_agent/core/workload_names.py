"""The name of a Pod's workload: Pods that came from one template get one name, on the node and in the extender.

What decides, first match wins: the label `carico.dev/workload`; the labels of the controller that made the Pod
(`pod-template-hash`, `job-name`, Argo's workflow, the StatefulSet's) which show what of the name is generated; the
name alone. Outside Kubernetes the labels of Compose, the image's repository (`shop/web` for `reg.local/shop/web:2`),
else the name.

Why the owner's name is not used although the extender knows it: the node does not (containerd keeps a Pod's labels,
not its owner), and both must find the same workload. For the same reason the name alone is parsed as strictly as the
labels would: where Pods come from the cgroup tree there are no labels.

The shapes are Kubernetes' own. Random suffixes are five letters of `bcdfghjklmnpqrstvwxz2456789` (no vowels, no 0, 1
and 3). Template hashes are a 32-bit number whose decimal digits 0-9 are written as 456789bcdf in another order, so
they consist of these ten letters only: a name like `cache-xvwzt-x7k2p` has no hash. Words of five such letters that
people use in names (`https`, `mssql`) are kept; one in a million random suffixes is one of them.
"""

import re
import zlib
from collections.abc import Mapping

WORKLOAD_LABEL = "carico.dev/workload"
MAX_CHARS = 128
"""Of a workload. Longer ones end in `~` and a checksum, so that two of them stay two."""
UNNAMED = "unnamed"
"""The workload of which only an id is known."""

_WORDS = frozenset({"https", "http2", "mssql", "pgsql", "smtps", "nfsv4", "tmpfs", "grpcs", "sftp2", "xhttp"})
_RANDOM = re.compile(r"-([bcdfghjklmnpqrstvwxz2456789]{5})$")
_HASH = re.compile(r"-[456789bcdf]{7,10}$")
_TIME = re.compile(r"-(?:\d{8}|\d{10})$")
"""A CronJob's Jobs end in the minutes since 1970, before Kubernetes 1.21 in the seconds."""
_ORDINAL = re.compile(r"-\d{1,5}$")
_NUMBER = re.compile(r"-\d{6,10}$")
"""Argo's checksum of a step."""
_UUID = re.compile(r"-?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}$")
_ID = re.compile(r"^(?:[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$")
_UNPRINTABLE = re.compile(r"[^A-Za-z0-9._:~-]")
_LONGEST_GENERATED = 63
"""A generated Pod name has at most so many characters: of a longer base the end is cut off before the suffix."""

_STATEFUL = ("statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index")
_JOB = ("batch.kubernetes.io/job-name", "job-name")
_WORKFLOW = "workflows.argoproj.io/workflow"
_TEMPLATE_HASH = "pod-template-hash"
_REVISION, _GENERATION = "controller-revision-hash", "pod-template-generation"
_CONTROLLED = (_TEMPLATE_HASH, _REVISION, _WORKFLOW, *_JOB, *_STATEFUL)
_COMPOSE = ("com.docker.compose.project", "com.docker.compose.service")
_SOURCE, _MIRROR = "kubernetes.io/config.source", "kubernetes.io/config.mirror"


def workload_of(namespace: str, name: str, labels: Mapping[str, str], image: str = "", node_name: str = "") -> str:
    """The workload as `namespace/template`, at most 128 printable characters.

    `image` only outside Kubernetes; the labels of Compose count beside it alone: with them a Pod of one namespace would
    name a workload of another. `node_name` is needed for static Pods, whose names end in it.

    >>> workload_of("shop", "web-6c5d9b7f8d-x7k2p", {"pod-template-hash": "6c5d9b7f8d"})
    'shop/web'
    >>> workload_of("shop", "report-28391040-lq8zd", {}), workload_of("shop", "kafka-2", {})
    ('shop/report', 'shop/kafka')
    >>> workload_of("default", "a1", {}, image="docker.io/library/nginx:1.25")
    'default/nginx'
    >>> workload_of("default", "shop-web-1", dict(zip(_COMPOSE, ("shop", "web"), strict=True)), image="web")
    'shop/web'
    """
    if chosen := labels.get(WORKLOAD_LABEL, ""):
        return _bounded(namespace, chosen)
    if image and all(labels.get(label) for label in _COMPOSE):
        return _bounded(labels[_COMPOSE[0]], labels[_COMPOSE[1]])
    shelf, repository = _repository(image)
    if repository:
        return _bounded(shelf or namespace, repository)
    return _bounded(namespace, _template(name, labels, node_name))


def is_per_node(
    name: str,
    labels: Mapping[str, str],
    owner_kind: str = "",
    annotations: Mapping[str, str] | None = None,
    node_name: str = "",
) -> bool:
    """Whether a DaemonSet or the kubelet itself (a static Pod) runs it: such a Pod never is the next one to arrive.

    >>> is_per_node("kube-proxy-x7k2p", {"controller-revision-hash": "7d9c4b8f5", "pod-template-generation": "1"})
    True
    >>> is_per_node("etcd-node1", {"component": "etcd"}, node_name="node1"), is_per_node("web-node1", {})
    (True, False)
    """
    notes = annotations or {}
    if owner_kind:
        return owner_kind in ("DaemonSet", "Node")  # a mirror of a static Pod belongs to its Node
    if _MIRROR in notes or notes.get(_SOURCE, "api") != "api":
        return True
    return (_REVISION in labels and _GENERATION in labels) or _is_static(name, labels, node_name)


def is_service(name: str, labels: Mapping[str, str]) -> bool:
    """Whether a Deployment or a StatefulSet keeps it running: it answers requests, and cares how long it waits.

    Jobs, bare Pods, plain containers and processes do not count: nothing says what they are.

    >>> is_service("web-6c5d9b7f8d-x7k2p", {"pod-template-hash": "6c5d9b7f8d"}), is_service("web-6c5d9b7f8d-x7k2p", {})
    (True, True)
    >>> is_service("pi-x7k2p", {"job-name": "pi"}), is_service("kafka-2", {_STATEFUL[0]: "kafka-2"})
    (False, True)
    """
    if any(label in labels for label in (_TEMPLATE_HASH, *_STATEFUL)):
        return True
    base = _RANDOM.sub("", name)
    return not any(label in labels for label in _CONTROLLED) and base != name and bool(_HASH.search(base))


def _is_static(name: str, labels: Mapping[str, str], node_name: str) -> bool:
    ends = bool(node_name) and name.endswith(f"-{node_name}")
    return ends and not any(label in labels for label in _CONTROLLED)


def _template(name: str, labels: Mapping[str, str], node_name: str) -> str:
    """The name without what was generated."""
    if _is_static(name, labels, node_name):
        return name.removesuffix(f"-{node_name}")
    if template_hash := labels.get(_TEMPLATE_HASH):
        return _without_hash(name, template_hash)
    workflow = labels.get(_WORKFLOW, "")
    if workflow and name.startswith(workflow):
        return _job(workflow) + _NUMBER.sub("", name[len(workflow) :])
    job = labels.get(_JOB[0]) or labels.get(_JOB[1]) or ""
    if job and name.startswith(job[: _LONGEST_GENERATED - 6]):
        return _job(job)
    if any(label in labels for label in _STATEFUL):
        return _ORDINAL.sub("", name)
    if _REVISION in labels:
        return _RANDOM.sub("", name) or name
    return _from_name(name)


def _without_hash(name: str, template_hash: str) -> str:
    base = _RANDOM.sub("", name) or name
    if base.endswith(f"-{template_hash}"):
        return base.removesuffix(f"-{template_hash}") or base
    if len(name) >= _LONGEST_GENERATED:  # the hash was cut off, in part or as a whole
        base = name[:-5]
        for kept in range(len(template_hash) + 1, 0, -1):
            if base.endswith(f"-{template_hash}"[:kept]):
                return base[:-kept]
    return base


def _job(name: str) -> str:
    """A Job's name without a CronJob's time, a generated suffix, or the number in a row of Jobs."""
    if _TIME.search(name):
        return _TIME.sub("", name) or name
    base = _without_random(name) or name
    return _ORDINAL.sub("", base) or base


def _from_name(name: str) -> str:
    """Pods without labels: the same shapes, by their looks."""
    if _ID.match(name):
        return UNNAMED
    if _HASH.search(base := _RANDOM.sub("", name)) and base != name:
        return _HASH.sub("", base) or base
    if base := _without_random(name):
        return _job(base)
    if _NUMBER.search(name):
        return _step(_NUMBER.sub("", name)) or name
    return _UUID.sub("", _ORDINAL.sub("", name)) or name


def _step(name: str) -> str:
    """An Argo step `workflow-x7k2p-step`: the random part stands in the middle."""
    parts = name.split("-")
    for position in range(len(parts) - 1, 0, -1):
        if _RANDOM.match(f"-{parts[position]}") and parts[position] not in _WORDS:
            return "-".join(parts[:position] + parts[position + 1 :])
    return name


def _without_random(name: str) -> str:
    """The name before a random suffix that no controller's label or hash confirms; empty without one."""
    found = _RANDOM.search(name)
    return name[: found.start()] if found and found[1] not in _WORDS else ""


def _repository(image: str) -> tuple[str, str]:
    """Where an image is and its name, without registry, tag and digest; `library/` is Docker's own shelf.

    >>> [_repository(image) for image in ("nginx", "reg.local:5000/a/web:2", "docker.io/library/redis@sha256:ab")]
    [('', 'nginx'), ('a', 'web'), ('', 'redis')]
    """
    parts = image.partition("@")[0].split("/")
    if len(parts) > 1 and ("." in parts[0] or ":" in parts[0] or parts[0] == "localhost"):
        del parts[0]
    *shelf, name = parts
    return ".".join(part for part in shelf if part not in ("", "library")), name.partition(":")[0]


def _bounded(namespace: str, template: str) -> str:
    clean = [_UNPRINTABLE.sub("_", part) for part in (namespace, template or UNNAMED) if part]
    workload = "/".join(clean)
    if len(workload) <= MAX_CHARS:
        return workload
    checksum = zlib.crc32(f"{namespace}/{template}".encode(errors="surrogatepass"))
    # a namespace has at most 63 characters where Kubernetes checked it; elsewhere it is cut, too
    head = clean[0][:63] + "/" + clean[-1] if len(clean) > 1 else workload
    return f"{head[: MAX_CHARS - 9]}~{checksum:08x}"
