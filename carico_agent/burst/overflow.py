"""Which Jobs do not fit at home: their Pods are unschedulable for a while, and no node has room for their workload.
Pure.

Both are asked because each alone is wrong: kube-scheduler's verdict is by requests and may be seconds old, and a node
with a free place by Pod-Capacity may be about to get the Pod. A node without an agent is judged by requests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from carico_agent.burst.objects import Object


@dataclass(frozen=True)
class Asked:
    """What one Pod asks for."""

    cpu: float = 0.0
    memory: float = 0.0


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
    """Ready and not cordoned."""

    def takes(self, workload: str, asked: Asked) -> bool:
        """Whether one more Pod of this workload fits.

        >>> [NodeRoom("a", cpu=8.0, pod_capacity=pods).takes("k", Asked(1.0)) for pods in (0.4, 1.2, None)]
        [False, True, True]
        """
        if not self.open or self.pods < 1:
            return False
        if self.pod_capacity is not None and self.fits.get(workload, self.pod_capacity) < 1.0:
            return False
        return asked.cpu <= self.cpu and asked.memory <= self.memory


@dataclass(frozen=True)
class Waiting:
    """A Job none of whose Pods has a node. `unschedulable_s`: for how long kube-scheduler has reported it as such."""

    key: tuple[str, str]
    workload: str
    asked: Asked
    unschedulable_s: float
    pods: int = 1


def stays(job: Waiting, nodes: Iterable[NodeRoom], min_s: float) -> str:
    """Why a waiting Job is no overflow (yet), or nothing.

    >>> job = Waiting(("d", "a"), "k", Asked(2.0), 40.0)
    >>> stays(job, [NodeRoom("n", cpu=1.0)], 30.0), stays(job, [NodeRoom("n", cpu=4.0)], 30.0), stays(job, [], 60.0)
    ('', 'node n has room for it', 'unschedulable for 40 s, of 60 s')
    """
    if job.unschedulable_s < min_s:
        return f"unschedulable for {job.unschedulable_s:.0f} s, of {min_s:g} s"
    for node in nodes:
        if node.takes(job.workload, job.asked):
            return f"node {node.name} has room for it"
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
