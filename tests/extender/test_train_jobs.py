"""Kubeflow TrainJobs: what their status says about the nodes their Pods are on."""

from collections.abc import Mapping
from typing import Any

import pytest

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.nodes import NodeColumns, NodeState, PendingPod
from carico_agent.extender.policies.least_left import LeastLeft
from carico_agent.extender.published import PublishedNode
from carico_agent.extender.train_jobs import (
    ABSENT_S,
    JOBSET,
    MAX_LEFT_S,
    PERIOD_S,
    TRAIN_JOBS,
    TrainJobs,
    TrainWork,
    by_node,
    remaining_s,
)
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused, Unreachable

NOW_S = 1704067230.0
FRESH = "2024-01-01T00:00:00Z"  # 30 s before


def train_job(name: str, left_s: Any, updated: Any = FRESH) -> Object:
    status = {"progressPercentage": 45, "estimatedRemainingSeconds": left_s, "lastUpdatedTime": updated}
    return {"metadata": {"name": name, "namespace": "ml"}, "status": {"trainerStatus": status}}


def pod(job: str, node: str, cpu: str = "", phase: str = "Running", namespace: str = "ml") -> Object:
    container = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    return {
        "metadata": {"name": "p", "namespace": namespace, "labels": {JOBSET: job}},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("left_s", "updated", "expected"),
    [
        (90, FRESH, 60.0),
        (10, FRESH, 0.0),
        (90, None, 90.0),
        (90, "2023-12-31T00:00:00Z", None),
        (90, "yesterday", None),
        (90, "2024-01-01T00:00:00", None),
        (-1, FRESH, None),
        ("90", FRESH, None),
        (True, FRESH, None),
        (None, FRESH, None),
        (float("inf"), FRESH, None),
    ],
)
def test_the_time_left(left_s: Any, updated: Any, expected: float | None) -> None:
    found = remaining_s(train_job("a", left_s, updated), NOW_S)
    assert (None if found != found else found) == expected


@pytest.mark.parametrize("status", [{}, {"trainerStatus": None}, {"trainerStatus": 5}, None])
def test_a_job_without_that_status(status: Any) -> None:
    assert remaining_s({"status": status}, NOW_S) != remaining_s({"status": status}, NOW_S)  # NaN


def test_the_work_of_its_pods_by_node() -> None:
    jobs = [train_job("long", 630), train_job("short", 40), train_job("silent", None)]
    pods = [
        pod("long", "n1", "2"),
        pod("long", "n2", "2"),
        pod("short", "n1"),  # requests nothing: one core
        pod("silent", "n2", "4"),
        pod("long", "n3", "2", phase="Pending"),
        pod("long", "n3", "2", namespace="other"),
        pod("gone", "n3", "2"),
    ]
    assert by_node(jobs, pods, NOW_S) == {"n1": TrainWork(2, 1210.0), "n2": TrainWork(1, 1200.0)}


def test_one_pod_counts_for_so_much_at_most() -> None:
    assert by_node([train_job("a", 10**12)], [pod("a", "n1", "9")], NOW_S) == {"n1": TrainWork(1, MAX_LEFT_S)}


class Client:
    def __init__(self, answers: Mapping[str, Object | KubeError]) -> None:
        self.answers, self.asked = answers, list[str]()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Object:
        self.asked.append(path)
        answer = self.answers[path]
        if isinstance(answer, KubeError):
            raise answer
        return answer


async def look(answers: Mapping[str, Object | KubeError]) -> tuple[Client, float, list[Mapping[str, TrainWork]]]:
    client, taken = Client(answers), list[Mapping[str, TrainWork]]()
    jobs = TrainJobs(client, taken.append)  # type: ignore[arg-type]
    return client, await jobs.poll(), taken


async def test_pods_are_asked_for_only_where_there_are_train_jobs() -> None:
    client, wait_s, taken = await look({TRAIN_JOBS: {"items": []}})
    assert (client.asked, wait_s, taken) == ([TRAIN_JOBS], PERIOD_S, [{}])
    fresh = train_job("a", 60, None)
    client, wait_s, taken = await look({TRAIN_JOBS: {"items": [fresh]}, "/api/v1/pods": {"items": [pod("a", "n1")]}})
    assert (wait_s, taken) == (PERIOD_S, [{"n1": TrainWork(1, 60.0)}])


@pytest.mark.parametrize(
    ("error", "wait_s"), [(Refused(404, "x"), ABSENT_S), (Refused(403, "x"), ABSENT_S), (Unreachable("x"), PERIOD_S)]
)
async def test_without_a_trainer_nothing_is_known_and_it_is_looked_for_seldom(error: KubeError, wait_s: float) -> None:
    _, waits_s, taken = await look({TRAIN_JOBS: error})
    assert (waits_s, taken) == (wait_s, [{}])


def first(*states: NodeState) -> str:
    scores = LeastLeft().scores(NodeColumns.of(states), PendingPod("uid"), 10.0)
    return states[scores.index(10)].name


def test_the_policy_counts_pods_that_do_not_report_by_their_train_job() -> None:
    long = NodeState("long", 8, 0, 150, assigned=1, cpu=4, train_pods=1, train_s=5000.0)
    short = NodeState("short", 8, 0, 150, assigned=2, cpu=4, train_pods=2, train_s=20.0)
    assert first(long, short) == "short"


def test_a_pod_that_reports_to_its_node_is_not_counted_twice() -> None:
    both = NodeState("both", 8, 0, 150, assigned=1, cpu=4, work_jobs=1, work_s=100.0, train_pods=1, train_s=100.0)
    other = NodeState("other", 8, 0, 150, assigned=1, cpu=4, work_jobs=1, work_s=150.0)
    assert first(both, other) == "both"


def test_what_was_found_stays_when_a_node_publishes_and_goes_when_the_jobs_do() -> None:
    cluster = Cluster(KubeClient.__new__(KubeClient))
    cluster.node_changed(False, PublishedNode("n1", places=8.0))
    cluster.take_train_work({"n1": TrainWork(2, 60.0), "unknown": TrainWork(1, 1.0)})
    cluster.node_changed(False, PublishedNode("n1", places=9.0))
    assert cluster.table.of(["n1"]).train_s.tolist() == [60.0]
    cluster.take_train_work({})
    assert cluster.table.of(["n1"]).train_pods.tolist() == [0.0]
