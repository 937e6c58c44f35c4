"""A gang of four (`spec.schedulingGroup`, alpha in 1.36) where three have room: none is bound, and all four are when
there is room for them. By the resource, by the extender, by both, and each with the webhook."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from carico_agent.lib.kube.access import from_kubeconfig
from lab.support.control_plane import Plane, binaries
from lab.support.extender_process import ExtenderProcess
from lab.support.waiting import wait_for
from lab.support.webhook import Webhook
from tests.conftest import TREE
from tests.kube.fleet import FakeNode
from tests.kube.test_burst import extended
from tests.kube.test_ignorable import by_tls, ignorable
from tests.kube.test_prompt import _republish, until

pytestmark = pytest.mark.kube

GROUP = "scheduling.k8s.io/v1alpha2"
MEMBERS = 4


@pytest.fixture(scope="module")
def gang_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    try:
        binaries()
    except LookupError as error:
        pytest.skip(f"no control plane: {error}")
    plane = Plane(tmp_path_factory.mktemp("gangs"), ("GenericWorkload", "GangScheduling"), GROUP)
    if plane.version < (1, 36):
        pytest.skip("PodGroup came in 1.36")
    try:
        plane.start()
        plane.apply(*sorted((TREE / "deploy/base").glob("*.yaml")))
        yield plane
    finally:
        plane.stop()


def add_gang(plane: Plane, places: int, name: str) -> None:
    body = {"apiVersion": GROUP, "kind": "PodGroup", "metadata": {"name": name}}
    spec = {"schedulingPolicy": {"gang": {"minCount": MEMBERS}}}
    plane.admin.post(f"/apis/{GROUP}/namespaces/default/podgroups", {**body, "spec": spec})
    for number in range(MEMBERS):
        plane.admin.add_pod(f"member-{number}", places, schedulingGroup={"podGroupName": name})


def refusals(plane: Plane) -> list[str]:
    """What kube-scheduler's events say of the members."""
    events = plane.admin.get("/api/v1/namespaces/default/events")["items"]
    return [event["message"] for event in events if event["reason"] == "FailedScheduling"]


@contextmanager
def parts(plane: Plane, folder: Path, asks_extender: bool, webhook: bool) -> Iterator[dict[str, Any]]:
    """The extender or the webhook or both, which lead; kube-scheduler's configuration for them. With both it ignores an
    extender that refuses, and the webhook has the last word."""
    if not (asks_extender or webhook):
        yield {}
        return
    hook = Webhook(plane, folder) if webhook else None
    extender = hook.extender if hook else ExtenderProcess(folder, plane.kubeconfig("extender-token")).ready()
    try:
        metrics = hook.metrics if hook else extender.metrics
        wait_for(lambda: "carico_extender_leads 1" in metrics(), "it leads")
        if hook and asks_extender:
            yield ignorable(by_tls(plane, hook))
        else:
            yield extended(extender) if asks_extender else {}
    finally:
        extender.stop()


@pytest.mark.parametrize("webhook", [False, True], ids=["", "webhook"])
@pytest.mark.parametrize(
    ("places", "asks_extender"), [(1, False), (0, True), (1, True)], ids=["resource", "extender", "both"]
)
async def test_all_members_or_none(
    gang_plane: Plane, tmp_path: Path, places: int, asks_extender: bool, webhook: bool
) -> None:
    plane = gang_plane
    plane.admin.clear()
    node = FakeNode("one", from_kubeconfig(plane.kubeconfig("agent-token")), 3.4)
    with parts(plane, tmp_path, asks_extender, webhook) as config:
        plane.start_scheduler(config)
        await asyncio.to_thread(plane.admin.add_node, node.name)
        node.publish()
        tasks = [asyncio.create_task(node.publisher.run()), asyncio.create_task(_republish([node]))]
        try:
            await until(lambda: node.publisher.writer.writes > 0)
            await asyncio.to_thread(add_gang, plane, places, tmp_path.name.replace("_", "-"))
            await bound_together(plane, node, places)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await node.client.close()
            plane.stop_scheduler()
            plane.admin.clear()


async def bound_together(plane: Plane, node: FakeNode, places: int) -> None:
    for _ in range(8):  # it is tried again and again meanwhile
        await asyncio.sleep(1.0)
        assert await asyncio.to_thread(plane.admin.bound) == {}
    if not places:  # kube-scheduler counts nothing for its members, so the extender says what keeps the gang
        texts = await asyncio.to_thread(refusals, plane)
        assert any("3 other members of gang default/" in text for text in texts), texts
    await asyncio.to_thread(plane.admin.add_pod, "alone", places)  # nobody waits for a gang that does not fit
    await until(lambda: len(node.publisher.mirror.pods) == 1, 20.0)
    node.slots, began_s = 5.4, time.monotonic()
    await until(lambda: len(node.publisher.mirror.pods) == 1 + MEMBERS, 30.0)
    print(f"all bound {time.monotonic() - began_s:.2f} s after there was room")
