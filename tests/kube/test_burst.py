"""Two hundred Pods over ten nodes: no node ever gets more than it published."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import TREE
from tests.kube.conftest import ExtenderProcess
from tests.kube.fleet import Fleet
from tests.kube.judge import Recorder, Verdict
from tests.kube.plane import Plane, wait_for

PODS = 200
StartExtender = Callable[..., ExtenderProcess]


async def burst(plane: Plane, count: int = PODS, places: int = 1) -> None:
    def create() -> None:
        for number in range(count):
            plane.admin.add_pod(f"burst-{number:03d}", places)

    await asyncio.to_thread(create)


async def all_finish(fleet: Fleet, count: int = PODS, timeout_s: float = 150.0) -> None:
    async with asyncio.timeout(timeout_s):
        while fleet.finished < count:
            await asyncio.sleep(0.2)


def report(name: str, verdict: Verdict) -> None:
    print(f"{name}: {verdict.bindings} bindings, most per node {sorted(verdict.most.values())}, "
          f"beyond the number then: {len(verdict.over_now)}, also before: {len(verdict.over_lately)}")  # fmt: skip


@pytest.mark.parametrize("wobble", [0.0, 3.0], ids=["constant", "changing"])
async def test_the_resource_alone(cluster: Plane, wobble: float) -> None:
    """An unmodified kube-scheduler without any extender."""
    cluster.start_scheduler()
    async with Recorder(cluster) as recorder, Fleet(cluster, slots=8.4, wobble=wobble) as fleet:
        await burst(cluster)
        await all_finish(fleet)
    verdict = recorder.judge("resource")
    report(f"resource, wobble {wobble}", verdict)
    assert verdict.bindings == PODS
    assert verdict.over_lately == []
    if not wobble:
        assert verdict.over_now == []
        assert set(verdict.most.values()) == {8}


def extended(*extenders: ExtenderProcess) -> dict[str, Any]:
    """The sample configuration, with the tests' addresses. Every Pod is sent to the extender."""
    sample = yaml.safe_load((TREE / "deploy/scheduler/v1beta1.yaml").read_text())["extenders"][0]
    for key in ("tlsConfig", "managedResources"):
        del sample[key]
    return {"extenders": [{**sample, "enableHTTPS": False, "urlPrefix": one.url} for one in extenders]}


@pytest.mark.parametrize("wobble", [0.0, 3.0], ids=["constant", "changing"])
async def test_the_extender_alone(cluster: Plane, start_extender: StartExtender, wobble: float) -> None:
    """Pods that ask for no resource: only the extender counts them."""
    cluster.start_scheduler(extended(start_extender()))
    async with Recorder(cluster) as recorder, Fleet(cluster, slots=8.4, wobble=wobble) as fleet:
        await burst(cluster, places=0)
        await all_finish(fleet)
    verdict = recorder.judge("places")
    report(f"extender, wobble {wobble}", verdict)
    assert verdict.bindings == PODS
    assert verdict.over_lately == []
    if not wobble:
        assert verdict.over_now == []


async def test_the_extender_is_killed_and_restarted(cluster: Plane, start_extender: StartExtender) -> None:
    first = start_extender()
    cluster.start_scheduler(extended(first))
    async with Recorder(cluster) as recorder, Fleet(cluster, slots=8.4, wobble=3.0) as fleet:
        creating = asyncio.create_task(burst(cluster, places=0))
        for _ in range(3):
            await asyncio.sleep(2.0)
            await asyncio.to_thread(first.stop, signal.SIGKILL)
            first = await asyncio.to_thread(start_extender, first.port)
        await creating
        await all_finish(fleet)
    verdict = recorder.judge("places")
    report("extender killed three times", verdict)
    assert verdict.bindings == PODS
    assert verdict.over_lately == []


async def test_two_replicas(cluster: Plane, start_extender: StartExtender, tmp_path: Path) -> None:
    """Two schedulers, each with an extender of its own, fill the same nodes at the same time."""
    one, two = start_extender(), start_extender()
    cluster.start_scheduler(extended(one))
    cluster.start_scheduler({**extended(two), "profiles": [{"schedulerName": "second"}]}, "kube-scheduler-2")
    async with Recorder(cluster) as recorder, Fleet(cluster, slots=8.4) as fleet:

        def create() -> None:
            for number in range(PODS):
                cluster.admin.add_pod(f"burst-{number:03d}", 0, ("default-scheduler", "second")[number % 2])

        await asyncio.to_thread(create)
        await all_finish(fleet)
    verdict = recorder.judge("places")
    report("two replicas", verdict)
    print([line for it in (one, two) for line in it.metrics().splitlines() if "s_total" in line and "#" not in line])
    assert verdict.bindings == PODS
    assert verdict.over_now == []


def test_stale_nodes_are_closed(cluster: Plane, start_extender: StartExtender) -> None:
    cluster.start_scheduler(extended(start_extender()))
    cluster.admin.add_node("quiet")
    said = '{"time":"2020-01-01T00:00:00Z","ttl_s":150,"places":5}'
    notes = {"carico.dev/slots": "5", "carico.dev/status": said}
    cluster.admin.merge("/api/v1/nodes/quiet", {"metadata": {"annotations": notes}})
    cluster.admin.add_pod("waits", 0)

    def event() -> str:
        events = cluster.admin.get("/api/v1/namespaces/default/events")["items"]
        return " ".join(entry["message"] for entry in events if entry["involvedObject"]["name"] == "waits")

    wait_for(lambda: "stale: last heard" in event(), "the event says why")
    assert cluster.admin.bound() == {}
