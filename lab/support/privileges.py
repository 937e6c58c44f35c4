"""Who has which rights, read from the manifests under deploy/, beside what each right is needed for.

`python -m lab.support.privileges` writes the table of docs/security.md. NEEDS is the list of what may be had: a test
compares it with the manifests, so that no account gets a right that nobody has written a reason for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TREE = Path(__file__).parents[2]
PAGE = TREE / "docs/security.md"
BEGIN, END = "<!-- made by python -m lab.support.privileges -->", "<!-- end -->"

CREATE_UNNAMED = "cannot be restricted by name"


@dataclass(frozen=True, order=True)
class GrantedRight:
    """One right of one service account. `where`: a namespace, or "cluster"."""

    who: str
    where: str
    what: str
    """Resource and group, as in `leases.coordination.k8s.io`, with names where only these are meant."""
    verb: str


NEEDS: dict[tuple[str, str, str], tuple[str, str]] = {
    # who, where, what: verbs, why
    ("carico/carico-agent", "cluster", "nodes"): (
        "list watch",
        "its own Node, and how many there are (RBAC cannot say: its own)",
    ),
    ("carico/carico-agent", "cluster", "nodes/status"): (
        "patch",
        "annotations and the resource; carico-own-node: of its own node, and nothing else",
    ),
    ("carico/carico-agent", "cluster", "pods"): ("list watch", "the Pods of its node (RBAC cannot say: of its node)"),
    ("carico/carico-agent", "carico", "leases.coordination.k8s.io"): (
        "create get patch",
        "heartbeat and offer; carico-own-lease: its own node's, for an hour at most",
    ),
    ("carico/carico-extender", "cluster", "nodes"): (
        "list patch watch",
        "which nodes have room; patch only with deploy/taints, carico-own-node: the taint carico.dev/full only",
    ),
    ("carico/carico-extender", "cluster", "pods"): ("list watch", "who holds it"),
    ("carico/carico-extender", "cluster", "pods/binding"): ("create", "the bind verb"),
    ("carico/carico-extender", "cluster", "nodes/status"): (
        "patch",
        "takes back the resource of a node whose agent is silent; carico-own-node: the resource only",
    ),
    ("carico/carico-extender", "cluster", "events"): ("create", "says so"),
    ("carico/carico-extender", "cluster", "trainjobs.trainer.kubeflow.org"): (
        "list",
        "policy least-left (deploy/progress): how long they still take",
    ),
    ("carico/carico-extender", "cluster", "workloads.kueue.x-k8s.io"): (
        "list watch",
        "deploy/kueue: which Workloads wait for the check",
    ),
    ("carico/carico-extender", "cluster", "workloads/status.kueue.x-k8s.io"): (
        "patch",
        "deploy/kueue: the check's answer (RBAC cannot say: of this check)",
    ),
    ("carico/carico-extender", "cluster", "admissionchecks.kueue.x-k8s.io"): (
        "list",
        "deploy/kueue: which checks are its own",
    ),
    ("carico/carico-extender", "cluster", "admissionchecks/status.kueue.x-k8s.io"): (
        "patch",
        "deploy/kueue: says that it answers",
    ),
    ("carico/carico-extender", "cluster", "resourceflavors.kueue.x-k8s.io"): (
        "list",
        "deploy/kueue: which nodes a flavor selects",
    ),
    ("carico/carico-extender", "carico", "leases.coordination.k8s.io"): (
        "create get list patch watch",
        "the agents' offers and its answers to them; its own as the leader",
    ),
    ("carico/carico-extender", "carico", "pods"): (
        "patch",
        "which replica leads; carico-own-pod: one label of its own Pod",
    ),
    ("carico/carico-plane", "cluster", "/metrics"): ("get", "how busy the API server is"),
    ("carico/carico-plane", "cluster", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"): (
        "create get list watch",
        f"looks at levels and creates its own; create {CREATE_UNNAMED}, carico-own-level does",
    ),
    ("carico/carico-plane", "cluster", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io: carico-reserve"): (
        "delete patch",
        "the one level it keeps",
    ),
    ("carico/carico-plane", "cluster", "clusterroles.rbac.authorization.k8s.io: carico-plane"): (
        "get",
        "its own role, which owns the level and the Lease: they are deleted with it",
    ),
    ("carico/carico-plane", "carico", "leases.coordination.k8s.io"): (
        "create",
        f"which of two instances writes; create {CREATE_UNNAMED}, carico-own-level does",
    ),
    ("carico/carico-plane", "carico", "leases.coordination.k8s.io: carico-plane"): ("get patch", "the same"),
    ("carico-burst/carico-burst", "cluster", "nodes"): ("list watch", "what is free, at home and at a target"),
    ("carico-burst/carico-burst", "cluster", "pods"): ("list watch", "what waits and what takes room, on both sides"),
    ("carico-burst/carico-burst", "cluster", "namespaces: kube-system"): ("get", "its UID is the cluster's name"),
    ("carico-burst/carico-burst", "cluster", "priorityclasses.scheduling.k8s.io"): (
        "get",
        "target: whether a class that a Job names is there",
    ),
    ("carico-burst/carico-burst", "cluster", "runtimeclasses.node.k8s.io"): ("get", "target: the same"),
    ("carico-burst/carico-burst", "cluster", "deviceclasses.resource.k8s.io"): ("get", "target: the same"),
    ("carico-burst/carico-burst", "cluster", "workloads.kueue.x-k8s.io"): ("list", "engine multikueue only"),
    ("carico-burst/carico-burst", "cluster", "workloads/status.kueue.x-k8s.io"): ("patch", "engine multikueue only"),
    ("carico-burst/carico-burst", "default", "jobs.batch"): (
        "create delete get list patch watch",
        "home: hold and mark Jobs (no create, no delete); target: their copies. In each namespace that binds it",
    ),
    ("carico-burst/carico-burst", "default", "jobs/status.batch"): ("patch", "home: the result of a copy"),
    ("carico-burst/carico-burst", "default", "events"): ("create", "home: why a Job moved, or stays"),
    ("carico-burst/carico-burst", "default", "burstledgers.carico.dev"): (
        "update",
        "no object: carico-burst-ledger lets only its holder write where a Job is",
    ),
    ("carico-burst/carico-burst", "default", "pods"): ("delete", "target: those that a kubelet refused for room"),
    ("carico-burst/carico-burst", "default", "namespaces"): ("get", "target: whether it is there"),
    ("carico-burst/carico-burst", "default", "secrets"): (
        "get create patch",
        "target: whether one that a Job names is there (get); deploy/burst/copy.yaml only: read at home, written "
        "beside the copy",
    ),
    ("carico-burst/carico-burst", "default", "configmaps"): (
        "create get patch",
        "home: the ends of moved Jobs' logs (create, patch; RBAC cannot restrict them by the end of a name); target: "
        "whether one that a Job names is there (get); deploy/burst/copy.yaml only: written beside the copy",
    ),
    ("carico-burst/carico-burst", "default", "pods/log"): (
        "get",
        "target: kept at home before a finished copy is deleted",
    ),
    ("carico-burst/carico-burst", "default", "persistentvolumeclaims"): ("get", "target: the same"),
    ("carico-burst/carico-burst", "default", "serviceaccounts"): ("get", "target: the same"),
    ("carico-burst/carico-burst", "default", "resourceclaims.resource.k8s.io"): ("get", "target: the same"),
    ("carico-burst/carico-burst", "default", "resourceclaimtemplates.resource.k8s.io"): ("get", "target: the same"),
    ("carico-burst/carico-burst", "carico-burst", "leases.coordination.k8s.io"): (
        "create",
        f"which replica leads; {CREATE_UNNAMED}, nothing else lives there",
    ),
    ("carico-burst/carico-burst", "carico-burst", "leases.coordination.k8s.io: carico-burst"): (
        "get patch",
        "which replica leads",
    ),
    ("carico-burst/carico-burst", "carico-burst", "secrets: carico-burst-cloud-kubeconfig"): (
        "get patch",
        "the way into target `cloud`, when its provisioner hands it back",
    ),
    ("carico-burst/carico-burst", "carico-burst", "secrets: carico-burst-seal"): (
        "get patch",
        "the key by which it recognises its own records",
    ),
    ("carico-burst/carico-burst", "carico-burst", "configmaps"): (
        "create",
        f"orders of a provisioner; {CREATE_UNNAMED}, nothing else lives there",
    ),
    ("carico-burst/carico-burst", "carico-burst", "configmaps: carico-burst-cloud"): (
        "get update",
        "orders of the provisioner of target `cloud`",
    ),
}


def objects(folder: Path = TREE / "deploy") -> list[Any]:
    """Every Kubernetes object of the manifests."""
    files = [file for file in sorted(folder.rglob("*.yaml")) if "helm" not in file.parts]  # made from the others
    found = [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]
    return [one for one in found if isinstance(one, dict) and "metadata" in one]


def rights(found: list[Any]) -> set[GrantedRight]:
    """What the bindings among these objects give to service accounts."""
    roles = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in found}
    given: set[GrantedRight] = set()
    for binding in found:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        where = binding["metadata"].get("namespace", "") if binding["kind"] == "RoleBinding" else "cluster"
        ref = binding["roleRef"]
        role = roles[ref["kind"], where if ref["kind"] == "Role" else "", ref["name"]]
        for subject in binding["subjects"]:
            assert subject["kind"] == "ServiceAccount", f"{subject} is no service account of ours"
            who = f"{subject['namespace']}/{subject['name']}"
            given |= {GrantedRight(who, where, what, verb) for rule in role["rules"] for what, verb in _of(rule)}
    return given


def _of(rule: Any) -> Iterator[tuple[str, str]]:
    for verb in rule["verbs"]:
        for url in rule.get("nonResourceURLs", ()):
            yield url, verb
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                what = f"{resource}.{group}" if group else resource
                names = rule.get("resourceNames") or [""]
                yield from ((f"{what}: {name}" if name else what, verb) for name in names)


def needed() -> set[GrantedRight]:
    return {GrantedRight(*key, verb) for key, (verbs, _) in NEEDS.items() for verb in verbs.split()}


def table() -> str:
    """The rights of every account, as the manifests have them, and what for."""
    has: dict[tuple[str, str, str], set[str]] = {}
    for right in rights(objects()):
        has.setdefault((right.who, right.where, right.what), set()).add(right.verb)
    lines = ["| who | has | where | needs it for |", "|---|---|---|---|"]
    for key in sorted(has, key=lambda one: (one[0], one[1] != "cluster", one[1], one[2])):
        who, where, what = key
        why = NEEDS.get(key, ("", "**no reason is written down**"))[1]
        place = "cluster" if where == "cluster" else f"`{where}`"
        lines.append(f"| `{who}` | {', '.join(sorted(has[key]))} `{what}` | {place} | {why} |")
    lines.append("| aggregator | nothing: it has no token | | |")
    return "\n".join(lines)


def renewed(page: str) -> str:
    """That page with today's table."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
