"""A real, unmodified kube-scheduler that places the jobs of `lab.progress.real` on two Node objects.

Each job is a Pod without requests, bound by kube-scheduler. The job itself trains in a container of the private
containerd. Its Pod goes when it has ended, as a Job's Pod would no longer count then.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from carico_agent.extender.nodes import NodeState
from lab.support.control_plane import Plane, running
from lab.support.waiting import wait_for

PODS = "/api/v1/namespaces/default/pods"


class KubeScheduler:
    """Answers like the other placements: with the number of a worker."""

    def __init__(self, plane: Plane, workers: int, has_ended: Callable[[str], bool]) -> None:
        """`has_ended`: whether the job of this name has."""
        self._plane, self._has_ended = plane, has_ended
        self._nodes = [f"worker-{number}" for number in range(workers)]
        self._live: list[str] = []
        self._count = 0
        for name in self._nodes:
            plane.admin.add_node(name, cpus=1)
        plane.start_scheduler()

    def place(self, states: list[NodeState]) -> int:
        for name in [one for one in self._live if self._has_ended(one)]:
            self._plane.admin.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            self._live.remove(name)
        name = f"job-{self._count}"
        self._count += 1
        self._live.append(name)
        self._plane.admin.add_pod(name, places=0)
        path = f"{PODS}/{name}"
        bound = wait_for(lambda: self._plane.admin.get(path)["spec"].get("nodeName"), f"{name} is bound", every_s=0.02)
        return self._nodes.index(str(bound))


@contextmanager
def control_plane() -> Iterator[Plane]:
    with tempfile.TemporaryDirectory(prefix="carico-plane-") as folder:
        yield from running(Path(folder))
