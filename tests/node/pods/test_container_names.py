"""Containers outside of Kubernetes by name: Docker's record, else the command they run."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from carico_agent.node.pods import container_names
from carico_agent.node.pods.cgroups import layout
from carico_agent.node.pods.container_names import MAX_LOOKS, ContainerNames, parse_record
from carico_agent.node.pods.containerd import ContainerdClient
from carico_agent.node.pods.pods import Container, PodChange, PodTable, Snapshot, Task, TaskStatus
from carico_agent.node.pods.tree import Scanner

from .trees import ID, FakeRoot

SCOPE = f"/system.slice/docker-{ID}.scope"
COMPOSE = {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"}


@pytest.fixture
def fake(tmp_path: Path) -> FakeRoot:
    made = FakeRoot(tmp_path, "v2")
    made.group(SCOPE)
    (tmp_path / f"sys/fs/cgroup{SCOPE}/cgroup.procs").write_text("77\n78\n")
    return made


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The containers are old enough for their command to be their own."""
    monkeypatch.setattr(container_names, "MIN_AGE_S", -1.0)


def command(fake: FakeRoot, *arguments: str) -> None:
    (fake.root / "proc/77").mkdir(exist_ok=True)
    (fake.root / "proc/77/cmdline").write_bytes(b"\0".join(map(str.encode, arguments)) + b"\0")


def record(root: Path, name: str, image: str, labels: dict[str, Any]) -> None:
    folder = root / f"var/lib/docker/containers/{ID}"
    folder.mkdir(parents=True)
    body = {"ID": ID, "Name": f"/{name}", "Config": {"Image": image, "Labels": labels}}
    (folder / "config.v2.json").write_text(json.dumps(body))


def named(scanner: Scanner) -> tuple[str, str]:
    (pod,) = scanner.scan().pods.values()
    return pod.name, pod.workload


def scanner_of(fake: FakeRoot) -> Scanner:
    return Scanner(fake.root, layout(fake.root))


@pytest.mark.parametrize(
    ("image", "labels", "workload"),
    [
        ("reg.local/shop/web:2", {}, "shop/web"),
        ("nginx:1.25", COMPOSE, "shop/web"),
        ("nginx:1.25", {"carico.dev/workload": "edge"}, "edge"),
        ("sha256:" + "a" * 64, {"odd": 7}, "shop-web"),
    ],
)
def test_docker_says_what_a_container_is(fake: FakeRoot, image: str, labels: dict[str, Any], workload: str) -> None:
    record(fake.root, "shop-web-1", image, labels)
    assert named(scanner_of(fake)) == ("shop-web-1", workload)


def test_without_dockers_record_the_command_names_it(fake: FakeRoot, later: None) -> None:
    command(fake, "/usr/local/bin/docker-init", "--", "redis-server", "*:6379")
    scanner = scanner_of(fake)
    assert named(scanner) == ("redis-server", "redis-server")
    (first,), (again,) = (list(scanner.scan().pods.values()) for _ in range(2))
    assert first is again


def test_a_new_container_is_named_when_its_entrypoint_has_gone(fake: FakeRoot) -> None:
    command(fake, "/bin/sh", "/docker-entrypoint.sh", "nginx")
    scanner = scanner_of(fake)
    for _ in range(2 * MAX_LOOKS):
        assert named(scanner) == (ID[:12], "unnamed")
    command(fake, "nginx: master process nginx -g daemon off;")
    with mock.patch.object(container_names.time, "time", return_value=1e11):
        assert named(scanner) == ("nginx", "nginx")


def test_a_command_that_cannot_be_read_is_given_up(fake: FakeRoot, later: None) -> None:
    scanner = scanner_of(fake)
    with mock.patch.object(ContainerNames, "_running", return_value=None) as read:
        for _ in range(2 * MAX_LOOKS):
            assert named(scanner) == (ID[:12], "unnamed")
    assert read.call_count == MAX_LOOKS


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff\xfe", b'{"Config": []}', b"[" * 10_000])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_record(data)


@pytest.mark.parametrize(("namespace", "workload"), [("moby", "shop/web"), ("default", "default/unnamed")])
def test_containerd_knows_only_the_id_of_dockers_containers(tmp_path: Path, namespace: str, workload: str) -> None:
    record(tmp_path, "shop-web-1", "nginx", COMPOSE)
    client: Any = SimpleNamespace(_names=ContainerNames(tmp_path))
    ref = (namespace, ID)
    container = ContainerdClient._described(client, ref, Container({}))
    table = PodTable()
    table.close_snapshot(Snapshot({ref: container}, {ref: Task(7, TaskStatus.RUNNING)}))
    (pod,) = table.pods.values()
    assert (pod.workload, pod.name) == (workload, "shop-web-1" if namespace == "moby" else ID)


def test_nerdctls_name_stands_for_the_id() -> None:
    table = PodTable()
    ref = ("default", ID)
    table.close_snapshot(Snapshot({ref: Container({"nerdctl/name": "web-1"})}, {}))
    table.apply(PodChange("/tasks/create", ref, pid=7))
    table.apply(PodChange("/tasks/start", ref, pid=7))
    (pod,) = table.pods.values()
    assert (pod.name, pod.workload) == ("web-1", "default/web")
