"""Which Jobs do not fit at home: their Pods are unschedulable for a while, and no node has room for their workload.
Pure.

Both are asked because each alone is wrong: kube-scheduler's verdict is by requests and may be seconds old, and a node
with a free place by Pod-Capacity may be about to get the Pod. A node without an agent is judged by requests.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from carico_agent.burst.objects import Object
from carico_agent.lib.kube.filters.neighbours import Neighbourhood, Resident, judge_places
from carico_agent.lib.kube.filters.pod_rules import FREE, PLAIN, NodeTraits, PodRules, Port

ROUNDING = 1e-6
"""Sums of thousandths of a core are not exact."""
STRANGER = Resident("", {})


@dataclass(frozen=True)
class Asked:
    """What one Pod asks for: CPU [cores], memory [bytes], other resources by name, and where it may run."""

    cpu: float = 0.0
    memory: float = 0.0
    others: Mapping[str, float] = field(default_factory=dict)
    rules: PodRules = FREE
    me: Resident = STRANGER

    def amounts(self) -> Iterator[tuple[str, float]]:
        """Every resource that it asks for."""
        found = (("cpu", self.cpu), ("memory", self.memory), *self.others.items())
        return ((name, amount) for name, amount in found if amount > 0)


@dataclass(frozen=True)
class NodeRoom:
    """What is free on one node. `fits` by workload and `pod_capacity` are the agent's; None: no agent, or its number is
    too old, and then requests decide."""

    name: str
    cpu: float = inf
    memory: float = inf
    pods: int = 1_000_000
    pod_capacity: float | None = None
    fits: Mapping[str, float] = field(default_factory=dict)
    open: bool = True
    """Ready."""
    others: Mapping[str, float] = field(default_factory=dict)
    """Free of every other resource; one that is not here the node does not have."""
    traits: NodeTraits = PLAIN
    residents: tuple[Resident, ...] = ()
    ports: frozenset[Port] = frozenset()

    def free(self, resource: str) -> float:
        return {"cpu": self.cpu, "memory": self.memory}.get(resource, self.others.get(resource, 0.0))

    def why_not(self, workload: str, asked: Asked) -> str:
        """Why one more Pod of this workload does not fit, its neighbours aside, or nothing.

        >>> node = NodeRoom("a", cpu=8.0, others={"nvidia.com/gpu": 1})
        >>> node.why_not("k", Asked(9.0)), node.why_not("k", Asked(1.0, others={"nvidia.com/gpu": 2}))
        ('insufficient cpu', 'insufficient nvidia.com/gpu')
        """
        if not self.open:
            return "not ready"
        if why := asked.rules.why_not(self.name, self.traits.labels, self.traits.taints, self.ports):
            return why
        if self.pods < 1:
            return "too many Pods"
        for name, amount in asked.amounts():
            if amount > self.free(name) + ROUNDING:
                return f"insufficient {name}"
        if self.pod_capacity is not None and self.fits.get(workload, self.pod_capacity) < 1.0:
            return "its Pod-Capacity is used"
        return ""

    def takes(self, workload: str, asked: Asked) -> bool:
        """Whether one more Pod of this workload fits.

        >>> [NodeRoom("a", cpu=8.0, pod_capacity=pods).takes("k", Asked(1.0)) for pods in (0.4, 1.2, None)]
        [False, True, True]
        """
        return not self.why_not(workload, asked)

    def with_one(self, asked: Asked) -> "NodeRoom":
        """The same node with one more Pod of this kind."""
        less = None if self.pod_capacity is None else self.pod_capacity - 1
        return replace(
            self,
            cpu=self.cpu - asked.cpu,
            memory=self.memory - asked.memory,
            pods=self.pods - 1,
            pod_capacity=less,
            fits={name: room - 1 for name, room in self.fits.items()},
            others={name: free - asked.others.get(name, 0.0) for name, free in self.others.items()},
            residents=(*self.residents, asked.me),
            ports=self.ports | frozenset(asked.rules.ports),
        )


def fitting(nodes: Sequence[NodeRoom], workload: str, asked: Asked) -> Iterator[int]:
    """The index of every node on which one more Pod of this workload fits, its neighbours included."""
    reasons = _reasons(nodes, workload, asked)
    return (index for index, why in enumerate(reasons) if not why)


def why_none(nodes: Sequence[NodeRoom], workload: str, asked: Asked) -> str:
    """In the words of kube-scheduler: why no node takes it.

    >>> why_none([NodeRoom("a", cpu=1.0), NodeRoom("b", cpu=1.0), NodeRoom("c", open=False)], "k", Asked(2.0))
    '0/3 nodes: 2 insufficient cpu, 1 not ready'
    """
    counts = Counter(why for why in _reasons(nodes, workload, asked) if why)
    return f"0/{len(nodes)} nodes: " + ", ".join(f"{count} {why}" for why, count in counts.most_common())


def _reasons(nodes: Sequence[NodeRoom], workload: str, asked: Asked) -> Iterator[str]:
    rules = asked.rules.neighbours
    objectors = [(node.traits.labels, one) for node in nodes for one in node.residents if one.anti]
    places = [_place(node, asked) for node in nodes] if rules is not None else []
    why_near = judge_places(asked.me, rules, places, objectors)
    return (node.why_not(workload, asked) or why_near(node.traits.labels) for node in nodes)


def _place(node: NodeRoom, asked: Asked) -> Neighbourhood:
    rules, traits = asked.rules, node.traits
    suits, tolerates = not rules.mismatch(node.name, traits.labels), not rules.untolerated(traits.taints)
    return Neighbourhood(traits.labels, node.residents, suits, tolerates)


@dataclass(frozen=True)
class Waiting:
    """A Job none of whose Pods has a node. `unschedulable_s`: for how long kube-scheduler has reported it as such."""

    key: tuple[str, str]
    workload: str
    asked: Asked
    unschedulable_s: float
    pods: int = 1
    here: Asked | None = None
    """What its Pods at home ask for, if that differs: defaults of that cluster are in them."""


def stays(job: Waiting, nodes: Sequence[NodeRoom], min_s: float) -> str:
    """Why a waiting Job is no overflow (yet), or nothing. Where burst cannot check all that kube-scheduler does, only
    kube-scheduler's verdict counts.

    >>> job = Waiting(("d", "a"), "k", Asked(2.0), 40.0)
    >>> stays(job, [NodeRoom("n", cpu=1.0)], 30.0), stays(job, [NodeRoom("n", cpu=4.0)], 30.0), stays(job, [], 60.0)
    ('', 'node n has room for it', 'unschedulable for 40 s, of 60 s')
    """
    if job.unschedulable_s < min_s:
        return f"unschedulable for {job.unschedulable_s:.0f} s, of {min_s:g} s"
    asked = job.here or job.asked
    if asked.rules.unjudged:
        return ""
    for index in fitting(nodes, job.workload, asked):
        return f"node {nodes[index].name} has room for it"
    return ""


def workload_of_job(job: Object) -> str:
    """What is alike: the label `carico.dev/workload`, else the CronJob that made it, else its images and commands.

    >>> meta = {"namespace": "d", "name": "a-1", "ownerReferences": [{"kind": "CronJob", "name": "a"}]}
    >>> workload_of_job({"metadata": meta, "spec": {"template": {"spec": {}}}})
    'd/CronJob/a'
    """
    meta, spec = job["metadata"], job["spec"]["template"].get("spec") or {}
    if workload := (meta.get("labels") or {}).get("carico.dev/workload"):
        return f"{meta['namespace']}/{workload}"
    for owner in meta.get("ownerReferences") or ():
        if owner.get("kind") == "CronJob":
            return f"{meta['namespace']}/CronJob/{owner.get('name')}"
    parts = [
        " ".join([container.get("image", ""), *(container.get("command") or ()), *(container.get("args") or ())])
        for container in spec.get("containers") or ()
    ]
    return f"{meta['namespace']}/{'; '.join(parts)}"[:300]
