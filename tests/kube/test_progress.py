"""Pods that report progress, on a real control plane: kube-scheduler puts the next one where the least work is left.

What a job reports goes the whole way: the agent's table of jobs, its status, the Node's annotation, the extender with
the policy least-left, an unmodified kube-scheduler, a binding.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from carico_agent.lib.kube.access import Access, from_kubeconfig
from carico_agent.node.pods.jobs import Jobs
from carico_agent.node.pods.pods import Pod
from carico_agent.node.publish.status import WorkStatus
from lab.support.control_plane import Plane
from lab.support.extender_process import ExtenderProcess
from lab.support.waiting import wait_for
from tests.kube.fleet import FakeNode
from tests.kube.test_burst import extended

StartExtender = Callable[..., ExtenderProcess]


class JobNode(FakeNode):
    """A node whose Pods report; each needs one CPU second per step, and gets a core."""

    def __init__(self, name: str, access: Access, slots: float) -> None:
        super().__init__(name, access, slots)
        self.jobs = Jobs(lambda pod: self._steps[pod.key], lambda: 0.0)
        self._steps: dict[str, float] = {}
        self._now_s = 0.0

    def work(self, uid: str, left_s: float) -> None:
        """This Pod is here and has so much left: it reports three of its steps."""
        self.running.add(uid)
        pods = {key: Pod(key, key, "default", uid=key) for key in self.running}
        self.jobs.refresh(self._now_s, pods)
        total = left_s + 3.0
        for done in (1.0, 2.0, 3.0):
            self._now_s += 1.0
            self._steps[uid] = done
            self.jobs.report(pods[uid], self._now_s, done, total)
        self.publish()

    def publish(self) -> None:
        super().publish()
        found = self.jobs.summary(self._now_s)
        work = WorkStatus(found.jobs, found.unknown, found.uncertain, found.total_s, found.longest_s)
        assert self.latest.status is not None
        self.latest.publish(replace(self.latest.status, work=work))


@asynccontextmanager
async def nodes(plane: Plane, **slots: float) -> AsyncIterator[dict[str, JobNode]]:
    access = from_kubeconfig(plane.kubeconfig("agent-token"))
    made = {name: JobNode(name, access, have) for name, have in slots.items()}
    tasks = []
    for name, node in made.items():
        await asyncio.to_thread(plane.admin.add_node, name)
        node.publish()
        tasks.append(asyncio.create_task(node.publisher.run()))
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for node in made.values():
            await node.client.close()


async def seen(plane: Plane, extender: ExtenderProcess, node: JobNode) -> None:
    """Until the annotation has the node's work, and the extender has read what the API server had by then."""
    wanted = f'"work":{{"jobs":{len(node.running)},'

    def is_out() -> bool:
        return wanted in plane.admin.node(node.name)["metadata"].get("annotations", {}).get("carico.dev/status", "")

    await asyncio.to_thread(wait_for, is_out, f"{node.name} has published {wanted}", 30)
    count = len(await asyncio.to_thread(lambda: plane.admin.get("/api/v1/nodes")["items"]))
    await asyncio.to_thread(plane.admin.add_node, f"last-{count}")  # the watch shows changes in their order
    line = f"carico_extender_nodes {count + 1}\n"
    await asyncio.to_thread(wait_for, lambda: line in extender.metrics(), "the extender has seen the last node", 30)


async def place(plane: Plane, name: str) -> tuple[str, str]:
    """A new Pod: its UID, and the node it was bound to."""
    uid = await asyncio.to_thread(plane.admin.add_pod, name, 0)

    def node() -> str:
        pod = plane.admin.get(f"/api/v1/namespaces/default/pods/{name}")
        return str(pod["spec"].get("nodeName") or "")

    return uid, str(await asyncio.to_thread(wait_for, node, f"{name} is bound", 60))


async def test_the_next_pod_goes_where_the_min_work_is_left(cluster: Plane, start_extender: StartExtender) -> None:
    """n2 has the most Pods and the least work: counting Pods would go to n1 or n3. Then what comes there is long, and
    n3 is next; then n3 has no room, and n1 is next, for room goes before work."""
    extender = await asyncio.to_thread(lambda: start_extender(policy="least-left"))
    cluster.start_scheduler(extended(extender))
    left_s = {"n1": [900.0], "n2": [40.0, 40.0, 40.0], "n3": [300.0]}
    async with nodes(cluster, n1=8.4, n2=8.4, n3=8.4) as found:
        for name, works in left_s.items():
            for at, work_s in enumerate(works):
                uid = await asyncio.to_thread(cluster.admin.add_pod, f"{name}-{at}", 0, nodeName=name)
                found[name].work(uid, work_s)
            await seen(cluster, extender, found[name])
        first, where = await place(cluster, "first")
        assert where == "n2"
        found["n2"].work(first, 2000.0)
        await seen(cluster, extender, found["n2"])
        second, where = await place(cluster, "second")
        assert where == "n3"
        found["n3"].slots = 2.0
        found["n3"].work(second, 1.0)
        await seen(cluster, extender, found["n3"])
        _, where = await place(cluster, "third")
        assert where == "n1"
