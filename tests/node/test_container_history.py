"""Minutes of containers go from the reader into the store, out to clients, and over a restart."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carico_agent.lib.kube.health import Health
from carico_agent.lib.net.http import ApiError
from carico_agent.node import container_history
from carico_agent.node.container_history import ContainerHistories
from carico_agent.node.pods.container_history import ContainerMinute, ContainerTotals, MinuteData
from carico_agent.node.pods.pods import Pod
from carico_agent.node.publish.node_mirror import NodeMirror, bound_pod
from carico_agent.node.publish.node_publisher import NodePublisher
from carico_agent.node.publish.publisher import KnowsPods
from carico_agent.node.sampling import TraceWriter
from carico_agent.recommend.sources.histories import from_agent, from_traces
from carico_agent.recommend.workload import Resources


class Reader:
    """A minute of one container at each look."""

    def __init__(self) -> None:
        self.minute = 0

    def tick(self, now_s: float, wall_s: float, pods: Any) -> list[ContainerMinute]:
        self.minute += 1
        data = MinuteData(1.7e9 + 60 * self.minute, 0.5, 2.0**28, 0, 10, 1)
        totals = ContainerTotals(
            now_s, 30_000_000 * self.minute, 2.0**28, 0, 10 * self.minute, self.minute, 0.5, 2.0**29
        )
        return [ContainerMinute("k1", "shop/web", "app", "c1", data, totals)]


POD = Pod("k1", "web-1", "shop", workload="shop/web")


def histories(folder: Path, pod: Pod = POD, **more: Any) -> ContainerHistories:
    runtime: Any = SimpleNamespace(pods={"k1": pod}, container_reader=Reader)
    return ContainerHistories(runtime, "n1", 4, 2.0**33, folder / "containers.json", **more)


async def watch(kept: ContainerHistories, minutes: int) -> dict[str, Any]:
    running = asyncio.create_task(kept.run())
    async with asyncio.timeout(60):
        while kept._reader.minute < minutes:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
    running.cancel()
    return await ask(kept)


async def ask(kept: ContainerHistories) -> dict[str, Any]:
    """Again, as its answer says, while the last look is under way."""
    for _ in range(2000):
        try:
            answered: Any = await kept.routes()["/v1/history/containers"]["GET"](None)  # type: ignore[arg-type]
            return dict(json.loads(answered.body))
        except ApiError as error:
            assert error.status == 503
            await asyncio.sleep(0.01)
    raise AssertionError("the histories are never answered")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_history, "LOOK_S", 0.001)


async def test_what_was_seen_is_answered_and_survives_a_restart(tmp_path: Path) -> None:
    kept = histories(tmp_path)
    body = await watch(kept, 3)
    assert (body["node"], body["cores"]) == ("n1", 4)
    (row,) = body["containers"]
    assert (row["namespace"], row["pod"], row["container"], row["workload"]) == ("shop", "web-1", "app", "web")
    await kept.save_last()
    again = histories(tmp_path)
    await again._workers.run(again._load)
    assert list(again._store.histories) == [("shop", "web-1", "app")]


WEB = {
    "metadata": {
        "uid": "u1",
        "name": "web-6c5d9b7f8d-x7k2p",
        "namespace": "shop",
        "labels": {"pod-template-hash": "6c5d9b7f8d"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web-6c5d9b7f8d", "controller": True}],
    },
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "app", "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1"}}}],
    },
    "status": {"phase": "Running", "qosClass": "Burstable"},
}


async def test_owner_requests_and_limits_are_the_api_servers(tmp_path: Path) -> None:
    """From the watch of this node's Pods to what `carico recommend` reads, also in a trace."""
    assert issubclass(NodePublisher, KnowsPods)  # by this the agent finds the watch
    mirror = NodeMirror(None, "n1", "carico.dev/pods", Health("test"))  # type: ignore[arg-type]
    mirror.change_pod(False, bound_pod(WEB, "carico.dev/pods"))
    rows: list[Any] = []
    pod = Pod("k1", WEB["metadata"]["name"], "shop", "u1", workload="shop/renamed")  # type: ignore[index]
    body = await watch(histories(tmp_path, pod, declared=mirror.declared, record=rows.append), 3)
    (row,) = body["containers"]
    assert (row["kind"], row["workload"]) == ("Deployment", "web")
    assert row["current"] == {"request_cores": 0.25, "limit_cores": 1.0, "qos": "Burstable"}
    ((key, current),) = from_agent(body).current.items()
    assert (key.workload.kind, key.workload.name, key.workload.guessed) == ("Deployment", "web", False)
    assert current == Resources(0.25, None, 1.0, None, "Burstable")
    (reading,) = rows[0].containers
    assert (reading.kind, reading.workload, reading.request_cores, reading.qos) == (
        "Deployment",
        "web",
        0.25,
        "Burstable",
    )


LABELS = {"io.kubernetes.pod.name": "x"}


@pytest.mark.parametrize(
    ("name", "labels", "cgroup", "owner", "current"),
    [
        (
            "web-6c5d9b7f8d-x7k2p",
            {"pod-template-hash": "6c5d9b7f8d", "carico.dev/workload": "other"},
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu1.slice",
            ("Deployment", "web"),
            Resources(None, None, 0.5, 2.0**29, "Burstable"),
        ),
        (
            "pi-1-x7k2p",
            {"job-name": "pi-1"},
            "/kubepods/podu1",
            ("Job", "pi-1"),
            Resources(0.5, 2.0**29, 0.5, 2.0**29, "Guaranteed"),
        ),
        ("db-0", LABELS, "/system.slice/x", ("Pod", "db-0"), Resources(None, None, 0.5, 2.0**29)),
    ],
)
async def test_without_an_api_server_labels_and_cgroups_say_it(
    tmp_path: Path, name: str, labels: dict[str, str], cgroup: str, owner: tuple[str, str], current: Resources
) -> None:
    pod = Pod("k1", name, "shop", "u1", labels=labels, cgroup=cgroup, workload="shop/web")
    ((key, found),) = from_agent(await watch(histories(tmp_path, pod), 3)).current.items()
    assert ((key.workload.kind, key.workload.name), found) == (owner, current) and not key.workload.guessed


async def test_a_trace_that_is_recorded_gets_the_containers(tmp_path: Path) -> None:
    """From the reader through the trace to a history, as `carico recommend --trace` reads it."""
    trace = TraceWriter(tmp_path / "n1.jsonl", node="n1", cores=4, resources=("cpu",))
    runtime: Any = SimpleNamespace(
        pods={"k1": Pod("k1", "web-1", "shop", workload="shop/web")}, container_reader=Reader
    )
    day = iter(range(1, 1000))
    kept = ContainerHistories(
        runtime,
        "n1",
        4,
        2.0**33,
        tmp_path / "containers.json",
        record=lambda row: trace.write_pods(replace(row, time_s=60.0 * next(day))),
    )
    await watch(kept, 5)
    trace.close()
    ((key, history),) = from_traces([str(tmp_path / "n1.jsonl")]).histories.items()
    assert (key.workload.namespace, key.workload.name, key.pod, key.container) == ("shop", "web", "web-1", "app")
    assert history.highest["cpu"] == pytest.approx(0.5)
    assert history.highest["memory"] == 2.0**28


async def test_a_trace_of_pods_without_names_can_be_read(tmp_path: Path) -> None:
    """The cgroup tree knows a Pod by its UID alone."""
    trace = TraceWriter(tmp_path / "n1.jsonl", node="n1", cores=4, resources=("cpu",))
    runtime: Any = SimpleNamespace(pods={"k1": Pod("k1", "1111-2222", "")}, container_reader=Reader)
    path = tmp_path / "containers.json"
    await watch(ContainerHistories(runtime, "n1", 4, 2.0**33, path, record=trace.write_pods), 3)
    trace.close()
    (key,) = from_traces([str(tmp_path / "n1.jsonl")]).histories
    assert (key.workload.namespace, key.pod) == ("", "1111-2222")


async def test_a_damaged_file_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "containers.json").write_text('{"version": 1, "containers": [{"pod": 1}]}')
    body = await watch(histories(tmp_path), 1)
    assert len(body["containers"]) == 1
    assert (tmp_path / "containers.damaged").exists() and "set aside" in caplog.text


async def test_a_full_disk_costs_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = histories(tmp_path / "file")
    (tmp_path / "file").write_text("in the way")
    kept._path = tmp_path / "file/containers.json"
    for _ in range(3):
        await kept._workers.run(kept._save)
    assert caplog.text.count("cannot be saved") == 1
