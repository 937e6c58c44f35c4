"""Pods as the plugin shows them: what each container requests and may use, and what Pods of its workload were measured to
take on their node.

What asks for nothing counts as nothing here: `kube.pod_requests.scored_of` assumes something instead, as scoring does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from carico_agent.kubectl.cells import Cell, number
from carico_agent.kubectl.tables import Column, Table, TableRow, label_columns
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.pod_requests import asked_of, of_container
from carico_agent.lib.kube.pods import PodFacts, facts
from carico_agent.lib.kube.workloads import RESOURCES, NodeWorkloads

UNITS = {"cpu": "cores", "memory": "bytes"}
WHOLE_POD = "*"

COLUMNS = (
    Column("namespace"),
    Column("pod"),
    Column("container"),
    Column("node"),
    Column("workload"),
    Column("phase", wide=True),
    *(
        Column(f"{resource}-{what}", wide=what == "limits")
        for resource in UNITS
        for what in ("requests", "limits", "use")
    ),
)


@dataclass(frozen=True, slots=True)
class Amount:
    """CPU [cores] and memory [bytes]."""

    cpu: float = 0.0
    memory: float = 0.0

    def of(self, resource: str) -> float:
        return self.cpu if resource == "cpu" else self.memory


@dataclass(frozen=True, slots=True)
class ContainerRow:
    name: str
    requests: Amount
    limits: Amount


@dataclass(frozen=True, slots=True)
class PodRow:
    """What is kept of a Pod object: a list of 100,000 of them does not stay in memory as such."""

    facts: PodFacts
    containers: tuple[ContainerRow, ...]
    requests: Amount
    limits: Amount
    labels: Mapping[str, str] = field(default_factory=dict)


def pod_view(pod: Object, resource: str) -> PodRow:
    """Read one Pod object.

    >>> limit = {"resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1"}}}
    >>> view = pod_view({"spec": {"containers": [limit, {"name": "b"}], "initContainers": [
    ...     {"resources": {"requests": {"cpu": "2"}}}]}}, "")
    >>> view.requests.cpu, view.limits.cpu, [one.requests.cpu for one in view.containers]
    (2.0, 1.0, [0.25, 0.0])
    """
    spec = pod.get("spec") or {}
    return PodRow(
        facts(pod, resource),
        tuple(_container(one) for one in spec.get("containers") or ()),
        Amount(*asked_of(pod)),
        Amount(*asked_of(pod, "limits")),
        (pod.get("metadata") or {}).get("labels") or {},
    )


def by_node(pods: Iterable[PodRow]) -> dict[str, list[PodRow]]:
    """Those that are bound, and under "" those that wait."""
    found: dict[str, list[PodRow]] = {}
    for pod in pods:
        found.setdefault(pod.facts.node, []).append(pod)
    return found


def _container(container: Object) -> ContainerRow:
    return ContainerRow(str(container.get("name", "")), _amounts(container, "requests"), _amounts(container, "limits"))


def _amounts(container: Object, what: str) -> Amount:
    return Amount(of_container(container, what, "cpu"), of_container(container, what, "memory"))


# ---- the table


def pods_table(
    pods: list[PodRow], workloads: Mapping[str, NodeWorkloads], allocatable: Mapping[str, Amount], labels: list[str]
) -> Table:
    """One row per Pod and one below it per container. Requests are shown as a part of the node, use as a part of what
    the Pod requests."""
    rows = [_pod_row(pod, workloads.get(pod.facts.node), allocatable.get(pod.facts.node), labels) for pod in pods]
    rows.sort(key=lambda row: (str(row.cell("namespace").value), str(row.cell("pod").value)))
    return Table("pods", (*COLUMNS, *label_columns(labels)), tuple(rows), parts="containers")


def _pod_row(pod: PodRow, workloads: NodeWorkloads | None, node: Amount | None, labels: list[str]) -> TableRow:
    seen, listed = pod.facts, None if workloads is None else workloads.workloads.get(pod.facts.workload)
    cells = {
        "namespace": Cell(seen.namespace),
        "pod": Cell(seen.name),
        "container": Cell(WHOLE_POD),
        "node": Cell(seen.node),
        "workload": Cell(seen.workload),
        "phase": Cell(seen.phase),
        **_asked(pod.requests, pod.limits, node),
        **{label: Cell(pod.labels.get(label, "")) for label in labels},
    }
    for resource, unit in UNITS.items():
        cost = None if listed is None else listed.cost[RESOURCES.index(resource)]
        cells[f"{resource}-use"] = number(cost, unit, pod.requests.of(resource) or None)
    return TableRow(cells, tuple(_container_row(seen, one, node) for one in pod.containers))


def _container_row(pod: PodFacts, container: ContainerRow, node: Amount | None) -> TableRow:
    named = {"namespace": Cell(pod.namespace), "pod": Cell(pod.name), "container": Cell(container.name)}
    return TableRow({**named, "node": Cell(pod.node), **_asked(container.requests, container.limits, node)})


def _asked(requests: Amount, limits: Amount, node: Amount | None) -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    for resource, unit in UNITS.items():
        whole = node.of(resource) if node else None
        found[f"{resource}-requests"] = number(requests.of(resource), unit, whole)
        found[f"{resource}-limits"] = number(limits.of(resource) or None, unit, whole)
    return found
