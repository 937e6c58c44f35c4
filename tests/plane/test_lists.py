"""Who lists, from where: URIs, audit events, metrics, and the level that is printed for the worst client."""

import json
from typing import Any

import pytest

from carico_agent.cli import main
from carico_agent.plane.arguments import compare, describe_limiter, limiters
from carico_agent.plane.list_clients import MAX_CLIENTS, ListClient, ListRequest, parse_uri, read_lists
from carico_agent.plane.list_limit import LEVEL, CannotLimit, limit_manifests, shares_for
from carico_agent.plane.lists import list_memory, memory_warning, resource_lists
from carico_agent.plane.processes import argument_values, memory_bytes
from carico_agent.plane.shares import seats_of
from carico_agent.plane.window import Window

PATH = "/api/v1/configmaps"
EXACT = "resourceVersion=7&resourceVersionMatch=Exact"


@pytest.mark.parametrize(
    ("query", "whole", "sources"),
    [  # what 1.30, 1.31 and 1.34 do
        ("", True, ("etcd", "cache", "cache")),
        ("?limit=500", False, ("etcd", "cache", "cache")),
        ("?limit=500&continue=abc", False, ("etcd", "etcd", "cache")),
        ("?resourceVersion=0", True, ("cache", "cache", "cache")),
        ("?resourceVersion=0&limit=500", True, ("cache", "cache", "cache")),
        (f"?{EXACT}", True, ("etcd", "etcd", "cache")),
        ("?resourceVersion=7&resourceVersionMatch=NotOlderThan", True, ("cache", "cache", "cache")),
        ("?fieldSelector=metadata.name%3Dx", False, ("etcd", "cache", "cache")),
        ("?limit=many", True, ("etcd", "cache", "cache")),
    ],
)
def test_where_a_list_is_read(query: str, whole: bool, sources: tuple[str, ...]) -> None:
    request = parse_uri(PATH + query)
    assert request.whole == whole
    assert tuple(request.source(minor) for minor in (30, 31, 34)) == sources


def event(user: str, uri: str = PATH, seconds: float = 1.0, **more: Any) -> str:
    return json.dumps(
        {
            "stage": "ResponseComplete",
            "verb": "list",
            "requestURI": uri,
            "userAgent": "lister/v1 (linux/amd64)",
            "user": {"username": user, "groups": ["system:authenticated"]},
            "objectRef": {"resource": "configmaps", "apiVersion": "v1"},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
            "stageTimestamp": f"2026-01-01T00:00:{seconds:09.6f}Z",
            **more,
        }
    )


def test_bad_clients_are_named_and_good_ones_are_not() -> None:
    lines = [
        *[event("plain", seconds=2.0)] * 4,
        *[event("polls", f"{PATH}?resourceVersion=0&limit=500", 3.0)] * 4,
        *[event("exact", f"{PATH}?{EXACT}", 1.0)] * 4,
        *[event("pages", f"{PATH}?limit=500", 1.0)] * 9,
        *[event("informer", f"{PATH}?resourceVersion=0", 2.0)] * 2,
        *[event("small", "/api/v1/namespaces/x/configmaps", 0.01)] * 9,
        event("plain", verb="get"),
        "nonsense",
        '{"list"',
        '"list"',
        event("plain", userAgent=7, requestReceivedTimestamp="yesterday"),
        event("plain", objectRef=None),
    ]
    report = read_lists(lines, 36)
    assert [(client.user, client.agent) for client, _ in report.worst()] == [
        ("polls", "lister/v1"),
        ("plain", "lister/v1"),
        ("exact", "lister/v1"),
    ]
    assert [one.faults() for _, one in report.worst()] == [
        ["4 with a limit that resourceVersion=0 switches off"],
        ["4 without a limit"],
        ["4 without a limit", "4 of an old version: from etcd when the watch cache has no snapshot of it"],
    ]
    old = read_lists(lines, 30)
    assert [client.user for client, one in old.worst() if one.etcd] == ["pages", "plain", "exact"]


def test_clients_without_end_stay_bounded() -> None:
    report = read_lists((event(f"user-{n}") for n in range(MAX_CLIENTS + 50)), 36)
    assert (len(report.clients), report.left_out) == (MAX_CLIENTS, 50)


LISTER = ListClient("system:serviceaccount:tools:lister", "x", "", "configmaps")
SHARES = {"system": 30, "workload-high": 40, "workload-low": 100, "node-high": 40, "global-default": 20}


@pytest.mark.parametrize("seats", [1, 4, 10, 40])
def test_the_level_has_as_many_seats_as_asked_for(seats: int) -> None:
    own = shares_for(600, SHARES, seats)
    given = seats_of(600, {**SHARES, "own": own})["own"]
    assert given <= max(seats, 3), "one share is 3 seats here"
    assert seats_of(600, {**SHARES, "own": own + 1})["own"] > seats


def test_no_level_for_parts_of_kubernetes() -> None:
    for user, masters in (("system:node:n1", False), ("system:kube-scheduler", False), ("admin", True)):
        with pytest.raises(CannotLimit):
            limit_manifests(ListClient(user, "", "", "pods", masters), "v1", 600, SHARES, 1)
    level, flow = limit_manifests(LISTER, "v1", 600, SHARES, 1)
    assert level["metadata"]["name"] == LEVEL == flow["spec"]["priorityLevelConfiguration"]["name"]
    assert flow["spec"]["rules"][0]["subjects"] == [
        {"kind": "ServiceAccount", "serviceAccount": {"namespace": "tools", "name": "lister"}}
    ]


def test_limit_lists_needs_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plane", "--limit-lists"]) == 2
    assert "--audit" in capsys.readouterr().err


# ---- metrics


def lists(**gauges: Any) -> Window:
    counted = {
        "apiserver_storage_list_total": {("configmaps",): 60.0, ("leases",): 0.0},
        "apiserver_storage_list_fetched_objects_total": {("configmaps",): 60.0 * 30_000},
        "apiserver_cache_list_total": {("configmaps",): 120.0, ("pods",): 6.0},
        "apiserver_cache_list_fetched_objects_total": {("configmaps",): 240.0, ("pods",): 600.0},
        "apiserver_watch_cache_consistent_read_total": {("pods", "true"): 5.0, ("pods", "false"): 30.0},
    }
    return Window(60, counted, gauges)


def test_lists_by_resource() -> None:
    worst, pods = resource_lists(lists(apiserver_resource_size_estimate_bytes={("configmaps",): 9e6}))
    assert (worst.resource, worst.etcd_per_s, worst.etcd_objects) == ("configmaps", 1, 30_000)
    assert (worst.cache_per_s, worst.cache_objects, worst.stored_bytes) == (2, 2, 9e6)
    assert (pods.resource, pods.failed_per_s, pods.stored_bytes) == ("pods", 0.5, None)
    assert resource_lists(Window(60)) == []


def test_a_warning_before_memory_runs_out() -> None:
    """60 MB of ConfigMaps; workload-low has 245 seats, and such a LIST takes 36.75 of them: 6 at once."""
    gauges = {
        "process_resident_memory_bytes": {(): 1e9},
        "apiserver_resource_size_estimate_bytes": {("configmaps",): 60e6, ("pods",): 2e6},
        "apiserver_flowcontrol_nominal_limit_seats": {("workload-low",): 245.0, ("system",): 74.0},
    }
    seen = list_memory(lists(**gauges))
    assert seen is not None and (seen.resource, seen.lists, seen.worst_bytes) == ("configmaps", 6, 1e9 + 6 * 60e6)
    assert memory_warning(seen, 4e9) == "" == memory_warning(seen, None) == memory_warning(None, 4e9)
    assert memory_warning(seen, 1.5e9).startswith("memory: 6 LISTs of configmaps at once (60 MB each")
    assert list_memory(lists()) is None


# ---- arguments


def test_a_component_that_waits_for_itself() -> None:
    name = "rest_client_rate_limiter_duration_seconds"
    busy = Window(60, {f"{name}_sum": {(): 600.0}, f"{name}_count": {(): 3000.0}})
    calm = Window(60, {f"{name}_sum": {(): 1.0}, f"{name}_count": {(): 3000.0}})
    (found,) = limiters({"kube-scheduler": busy, "kube-controller-manager": calm, "etcd": None})
    assert (found.component, found.waiting, found.each_s) == ("kube-scheduler", 10, 0.2)
    assert describe_limiter(found, {}).startswith(
        "kube-scheduler waits for its own client limit (qps = 50, the default): 10 requests wait 200 ms each; raise "
        "clientConnection.qps and clientConnection.burst in its configuration, to 200 and 400"
    )
    assert "(qps = 100)" in describe_limiter(found, {"kube-api-qps": 100.0})


@pytest.mark.parametrize(
    ("command", "config", "qps"),
    [
        ("kube-scheduler\0--kube-api-qps=80\0", "", 80.0),
        (
            "kube-scheduler\0--config=/c\0",
            "kind: X\nclientConnection:\n  kubeconfig: /k\n  qps: 120\n  burst: 9\n",
            120.0,
        ),
        ("kube-scheduler\0--config\0/c\0", '{"clientConnection": {"kubeconfig": "/k", "qps": 500}}', 500.0),
        ("kube-scheduler\0--config=/c\0", "kind: X\n", None),
    ],
)
def test_arguments_of_a_process(tmp_path, command: str, config: str, qps: float | None) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cmdline").write_text(command)
    (tmp_path / "c").write_text(config)
    values = argument_values(7, str(tmp_path))
    assert values.get("kube-api-qps") == qps
    row = compare("kube-scheduler", values)[0]
    assert (row["value"], row["is_default"], row["documented"]) == (qps or 50, qps is None, 200)


def test_memory_of_a_process(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/api").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("0::/api\n")
    assert memory_bytes(7, str(tmp_path)) is None
    (tmp_path / "proc/meminfo").write_text("MemTotal:       1000 kB\n")
    assert memory_bytes(7, str(tmp_path)) == 1_024_000
    (tmp_path / "sys/fs/cgroup/api/memory.max").write_text("500000\n")
    assert memory_bytes(7, str(tmp_path)) == 500_000


def test_a_request_reads_as_it_was_written() -> None:
    assert parse_uri("/api/v1/pods?limit=5&resourceVersion=0") == ListRequest(5, "0")
