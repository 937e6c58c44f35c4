"""gRPC messages, 10,000 damaged ones of each message: taken, or refused by the one error meant for it. Nothing else."""

import time
from contextlib import suppress

import numpy as np
from google.protobuf.message import DecodeError

from carico_agent.federation import profiles, wire, wire_workloads
from carico_agent.federation.aggregator import Aggregator
from carico_agent.federation.contribution import Rejected
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.node.pods.containerd import PAYLOADS, change_of, snapshot_of
from carico_agent.node.pods.pods import CONTAINER_NAME, CRI_ROLE, POD_NAME, POD_NAMESPACE, POD_UID, PodChange, PodTable
from carico_agent.node.pods.proto import containers_pb2, tasks_pb2, types_pb2
from carico_agent.settings import AggregatorSettings
from tests.faults.damage import CASES, SEED, damaged
from tests.faults.tally import counted

GOOD = {"resources": ["cpu", "memory"], "u": [0.6, 0.8, 0.8, -0.6], "sigma": [1.0, 0.2]}
DAY = profiles.encoded(np.full((2, 48), 0.5))
WEB = pb.WorkloadCost(workload="shop/web", cost=[0.5, 2e8], spread=[0.1, 1e7], pods_seen=4, arrivals=2.0, profile=DAY)
LABELS = {CRI_ROLE: "container", POD_UID: "u1", POD_NAME: "web", POD_NAMESPACE: "prod", CONTAINER_NAME: "c"}


def contribution(node: str) -> bytes:
    return pb.Contribution(
        node=node,
        subspace=pb.Subspace(**GOOD),
        samples=10,
        pods=3,
        time_unix_nano=time.time_ns(),
        cost=pb.Cost(value=[0.1, 0.0], precision=[9.0, 1.0], size=[8.0, 1e9]),
        workloads=pb.WorkloadReport(workloads=[WEB]).SerializeToString(),
        fits=[4],
        limiting=[1],
        room=[3.0, 5e8],
        wire=wire.WIRE,
    ).SerializeToString()


def server(name: str = "test") -> Aggregator:
    one = Aggregator(AggregatorSettings(max_nodes=100), name)
    for node in ("a", "b"):
        one.exchange(contribution(node), None)
    merge(one)
    return one


def merge(one: Aggregator) -> None:
    one.merge()
    for _ in one.table.merge_workloads():
        one.render_workloads()


def test_what_nodes_send_to_an_aggregator() -> None:
    one, taken = server(), 0
    for number, raw in enumerate(counted(damaged([contribution("a"), contribution("b")], most=1), CASES)):
        taken += not pb.View.FromString(one.exchange(raw, None)).rejected
        if number % 100 == 0:
            merge(one)
    assert 10 < taken < CASES  # both roads were taken
    wire.read_view(one.exchange(contribution("a"), None), ("cpu", "memory"), (), 0.0)  # the view is still sound


def test_what_an_aggregator_tells_nodes() -> None:
    one, taken = server(), 0
    view = one.exchange(contribution("a"), None)
    assert pb.View.FromString(view).workloads.workloads[0].workload == "shop/web"
    for raw in counted(damaged([view, pb.View(rejected="no").SerializeToString()], most=1), CASES):
        with suppress(Rejected):
            about, _ = wire.read_view(raw, ("cpu", "memory"), (8.0, 1e9), 0.0)
            wire_workloads.to_node(wire_workloads.read_table(about.workloads), ("cpu", "memory"), (8.0, 1e9))
            taken += 1
    assert 100 < taken < CASES


def test_what_aggregators_send_each_other() -> None:
    one, other, taken = server(), server("other"), 0
    partial = other.table.partial("other").SerializeToString()
    for number, raw in enumerate(counted(damaged([partial], most=1), CASES)):
        with suppress(Rejected):
            one.share(raw, None)
            taken += 1
        if number % 100 == 0:
            merge(one)
    assert 100 < taken < CASES
    wire.read_view(one.exchange(contribution("a"), None), ("cpu", "memory"), (), 0.0)


def test_what_containerd_tells() -> None:
    """Its events: whatever can be read is applied, and the table stays a table."""
    good = []
    for topic, message in PAYLOADS.items():
        payload = message(**{"id" if topic.startswith("/containers/") else "container_id": "c1"})
        event = types_pb2.Envelope(topic=topic, namespace="k8s.io")
        event.timestamp.seconds, event.event.value = 1_700_000_000, payload.SerializeToString()
        good.append(event.SerializeToString())
    table, applied = PodTable(), 0
    for raw in counted(damaged(good, most=2), CASES):
        with suppress(DecodeError):
            change = change_of(types_pb2.Envelope.FromString(raw))
            if change is not None:
                table.apply(change)
                applied += 1
    assert 100 < applied < CASES
    assert table.live()
    before = table.count
    table.apply(PodChange("/containers/create", ("default", "sound"), labels={}))
    table.apply(PodChange("/tasks/start", ("default", "sound"), pid=7))
    assert table.count == before + 1 == sum(pod.counts for pod in table.pods.values())


def test_what_containerd_lists() -> None:
    containers = containers_pb2.ListContainersResponse()
    containers.containers.add(id="c1", labels=LABELS)
    containers.containers.add(id="c2", labels={**LABELS, CRI_ROLE: "sandbox"})
    tasks = tasks_pb2.ListTasksResponse()
    tasks.tasks.add(id="c1", pid=7, status=2)
    tasks.tasks.add(container_id="c2", pid=8, status=5)
    lists = zip(
        damaged([containers.SerializeToString()], most=1),
        damaged([tasks.SerializeToString()], seed=SEED + 1, most=1),
        strict=True,
    )
    table, taken = PodTable(), 0
    for listed, running in counted(lists, CASES):
        with suppress(DecodeError):
            snapshot = snapshot_of(
                "k8s.io",
                containers_pb2.ListContainersResponse.FromString(listed),
                tasks_pb2.ListTasksResponse.FromString(running),
            )
            table.open_snapshot()
            table.close_snapshot(snapshot)
            taken += 1
    assert 100 < taken < CASES
    assert all(pod.key for pod in table.pods.values())
