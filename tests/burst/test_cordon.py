"""The provisioner that opens and closes existing nodes."""

import io
import json
from typing import Any

import pytest

from carico_agent.burst import cordon
from carico_agent.burst.cordon import act, changes
from tests.burst.fake_client import FakeClient
from tests.burst.model import Cluster


def client(*closed: bool) -> FakeClient:
    fake = FakeClient(Cluster("cloud"))
    nodes = [{"metadata": {"name": f"n{i}"}, "spec": {"unschedulable": shut}} for i, shut in enumerate(closed)]
    fake.lists["/api/v1/nodes"] = nodes
    for node in nodes:
        fake.objects[f"/api/v1/nodes/{node['metadata']['name']}"] = node  # type: ignore[index]
    return fake


async def test_as_many_nodes_as_asked_for_are_open() -> None:
    fake = client(True, True, True)
    report = await act(fake, "pool=burst", {"verb": "scale", "nodes": 2})  # type: ignore[arg-type]
    assert (report["state"], report["nodes"]) == ("ready", 2)
    assert fake.objects["/api/v1/nodes/n0"]["spec"] == {"unschedulable": None}


async def test_delete_closes_all_but_those_with_jobs() -> None:
    fake = client(False, False)
    report = await act(fake, "pool=burst", {"verb": "delete", "busy": ["n1"]})  # type: ignore[arg-type]
    assert report["nodes"] == 1
    assert fake.objects["/api/v1/nodes/n0"]["spec"] == {"unschedulable": True}


async def test_no_such_nodes_is_a_failure() -> None:
    assert (await act(client(), "pool=burst", {"verb": "status"}))["state"] == "failed"  # type: ignore[arg-type]


def test_the_same_order_twice_changes_nothing() -> None:
    nodes = {"a": False, "b": False}
    nodes |= changes(nodes, 1, set())
    assert changes(nodes, 1, set()) == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"verb": "burn"}'])
def test_nonsense_is_refused(text: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert cordon.main(["--kubeconfig", "/none", "--label", "a=b"]) == 1
    assert capsys.readouterr().out == ""


def test_an_unreachable_cluster_is_an_error_and_not_absent(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"verb": "status"})))
    assert cordon.main(["--kubeconfig", "/none", "--label", "a=b"]) == 1
    assert "No such file" in capsys.readouterr().err
