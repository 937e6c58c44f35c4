"""`kubectl carico` against a small API server: what users see with which rights, and that nothing is written."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico_agent.cli import main as carico
from carico_agent.kubectl import main
from carico_agent.kubectl.nodes import node_view, nodes_table
from carico_agent.kubectl.tables import sort
from carico_agent.lib.kube.access import from_kubeconfigs, of_user
from carico_agent.lib.kube.errors import BadAccess
from carico_agent.lib.net.times import rfc3339
from tests.commands.kube_api import KubeApi, serving

GIB = 2**30
LEASES = "/apis/coordination.k8s.io/v1/namespaces/carico/leases"
WHY = "/api/v1/namespaces/carico/services/https:carico-extender:admission/proxy/why"


def node(name: str, age_s: float = 10.0, capacity: float | None = 2.5, room: float = 3.0, zone: str = "a") -> Any:
    """4 cores, 16 GiB; of 8 cores of demand `room` are left."""
    notes = {}
    if capacity is not None:
        status = {
            "v": 1,
            "mode": "measured",
            "ttl_s": 150,
            "time": rfc3339(time.time() - age_s),
            "low": 2.0,
            "high": 3.0,
            "limiting": "cpu",
            "places": int(capacity) + 2,
        }
        workloads = {
            "room": {"cpu": room, "memory": 8 * GIB},
            "next": {"cpu": 1},
            "workloads": {"shop/web": {"cpu": 0.5, "memory": GIB, "fits": room / 0.5, "pods": 2}},
        }
        notes = {
            "carico.dev/pod-capacity": f"{capacity:.2f}",
            "carico.dev/slots": str(int(capacity) + 2),
            "carico.dev/status": json.dumps(status),
            "carico.dev/workloads": json.dumps(workloads),
        }
    have = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "annotations": notes, "labels": {"zone": zone}},
        "status": {"capacity": have, "allocatable": have},
    }


def pod(name: str, on: str = "", cpu: str = "1", namespace: str = "shop", **labels: str) -> Any:
    web = {"name": "web", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": "2"}}}
    return {
        "metadata": {"uid": f"uid-{name}", "name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [web, {"name": "side"}], **({"nodeName": on} if on else {})},
        "status": {"phase": "Running" if on else "Pending"},
    }


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[KubeApi]:
    """Three nodes: a with two Pods, b fuller, c stale; d has never published."""
    with serving() as api:
        web = {"pod-template-hash": "6c5d9b7f8d"}
        api.lists["/api/v1/nodes"] = [
            node("a", room=6.0),
            node("b", capacity=0.5, room=0.2, zone="b"),
            node("c", age_s=500.0),
            node("d", capacity=None),
        ]
        pods = [
            pod("web-6c5d9b7f8d-x7k2p", "a", **web),
            pod("web-6c5d9b7f8d-bcdfg", "a", **web),
            pod("other", "b", cpu="3500m", namespace="else"),
        ]
        waiting = pod("web-6c5d9b7f8d-wwwww", **web)
        api.lists["/api/v1/pods"] = [*pods, waiting]
        api.lists["/api/v1/namespaces/shop/pods"] = [*pods[:2], waiting]
        api.objects["/api/v1/namespaces/shop/pods/web-6c5d9b7f8d-wwwww"] = waiting
        api.objects["/api/v1/namespaces/shop/pods/web-6c5d9b7f8d-x7k2p"] = pods[0]
        api.lists["/api/v1/namespaces/shop/events"] = [
            {"metadata": {}, "lastTimestamp": "2024-01-01T00:00:00Z", "message": "old"},
            {"metadata": {}, "lastTimestamp": "2024-01-01T00:01:00Z", "message": "0/4 nodes are available"},
        ]
        api.lists[LEASES] = []
        monkeypatch.setenv("KUBECONFIG", api.kubeconfig(tmp_path))
        yield api
        assert {method for method, _, _ in api.asked} <= {"GET"}


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The answer as JSON, after exit code 0."""
    assert main([*arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def names(found: Any) -> list[str]:
    return [row["node"] for row in found["nodes"]]


def test_nodes(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    head, total, a, b, c, d = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[:5] == ["NODE", "POD-CAPACITY", "LIMITING", "STATE", "PODS"] and head[-1] == "AGE"
    assert total[:2] == ["*", "3"]  # 2.5 and 0.5; what has expired counts as nothing
    assert a[:4] == ["a", "2.5", "cpu", "measured"]
    assert (c[3], d[3]) == ("stale", "unpublished")
    assert "(50%)" in " ".join(a)  # 2 cores requested, 2 in use (8 − 6), of 4
    assert b[3] == "measured"


def test_use_is_the_published_one_where_there_is_one(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    """The agent's own limits may be others than the default ones, by which it is derived otherwise."""
    notes = api.lists["/api/v1/nodes"][0]["metadata"]["annotations"]
    workloads = json.loads(notes["carico.dev/workloads"]) | {"used": {"cpu": 1.5}}
    notes["carico.dev/workloads"] = json.dumps(workloads)
    a = asked(capsys)["nodes"][0]
    assert (a["cpu_room"], a["cpu_use"]) == (6.0, 1.5)
    assert a["memory_use"] == pytest.approx(0.85 * 16 * GIB - 8 * GIB)


def test_numbers_for_machines(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys)
    a, b, c, d = found["nodes"]
    assert (a["pods"], a["cpu_requests"], a["cpu_use"], a["cpu_use_percent"]) == (2, 2.0, 2.0, 50.0)
    assert (a["cpu_room"], a["memory_room"], a["low"], a["high"]) == (6.0, 8 * GIB, 2.0, 3.0)
    assert a["memory_use"] == pytest.approx(0.85 * 16 * GIB - 8 * GIB)
    assert 9 <= a["age"] < 60
    assert b["cpu_use"] == pytest.approx(7.8) and b["cpu_requests"] == 3.5
    assert c["cpu_use"] is None and c["limiting"] == "" and d["pod_capacity"] is None and d["age"] is None
    assert found["total"]["cpu_requests"] == 5.5
    assert main(["-o", "yaml"]) == 0
    again = yaml.safe_load(capsys.readouterr().out)
    assert names(again) == ["a", "b", "c", "d"] and again["total"] == found["total"]


def test_sorted_by_any_column_and_by_per_cent(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.lists["/api/v1/nodes"][1]["status"]["allocatable"]["cpu"] = "400"  # b: most cores, least per cent
    assert names(asked(capsys, "--sort", "cpu-requests")) == ["b", "a", "c", "d"]
    assert names(asked(capsys, "--sort", "cpu-requests%")) == ["a", "b", "c", "d"]
    assert names(asked(capsys, "--sort", "node", "--reverse")) == ["d", "c", "b", "a"]
    assert names(asked(capsys, "--sort", "pod-capacity", "--reverse")) == ["b", "a", "c", "d"]  # unknown stays last
    table = nodes_table([node_view(one, None, "") for one in api.lists["/api/v1/nodes"]], [], [])
    for column in table.columns:
        for by in (column.key, f"{column.key}%"):
            assert len(sort(table, by)) == len(sort(table, by, reverse=True)) == 4
    assert main(["--sort", "cpu-usage"]) == 2
    assert "did you mean cpu-use?" in capsys.readouterr().err


def test_thresholds(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert names(asked(capsys, "--above", "cpu=80%")) == ["b"]
    assert names(asked(capsys, "--above", "cpu=1")) == ["a", "b"]
    assert names(asked(capsys, "--above", "cpu=1", "--below", "pod-capacity=1")) == ["b"]
    assert names(asked(capsys, "--above", "memory-requests=1Gi")) == ["a"]
    assert "total" not in asked(capsys, "--above", "cpu=1")
    for wrong in ("cpu", "cpu=", "cpu=much", "cpx=1"):
        assert main(["--above", wrong]) == 2, wrong


def test_label_columns_and_selectors(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "-L", "zone", "--sort", "zone", "-l", "pool=x")
    assert [row["labels"]["zone"] for row in found["nodes"]] == ["a", "a", "a", "b"]
    assert ("GET", "/api/v1/nodes") in {(method, path) for method, path, q in api.asked if "pool=x" in q.values()}
    assert main(["-L", "zone"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("ZONE")


def test_what_users_of_kubectl_are_used_to(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "-L", "zone,example.com/pool", "-L", "rack")
    assert list(found["nodes"][0]["labels"]) == ["zone", "example.com/pool", "rack"]
    assert main(["-L", "example.com/pool"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("AGE   POOL")
    assert asked(capsys, "pods") == asked(capsys, "--pods")
    assert main(["why", "pod/web-6c5d9b7f8d-x7k2p"]) == 0
    assert main(["why", "shop/web"]) == main(["pods", "web"]) == 2
    assert "give its namespace with -n" in capsys.readouterr().err
    assert main(["--above", "cpu=10000%"]) == 0
    out, err = capsys.readouterr()
    assert (out, "no nodes found" in err) == ("", True)
    assert asked(capsys, "--above", "cpu=10000%") == {"nodes": []}
    assert main(["fit", "-f", "/no/such"]) == 1
    assert capsys.readouterr().err == "carico: /no/such: No such file or directory\n"


def test_pods_and_containers(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "--pods")  # of the context's namespace
    assert [row["pod"][-5:] for row in found["pods"]] == ["bcdfg", "wwwww", "x7k2p"]
    first = found["pods"][0]
    assert (first["workload"], first["node"], first["cpu_use"], first["cpu_use_percent"]) == (
        "shop/web",
        "a",
        0.5,
        50.0,
    )
    assert [(one["container"], one["cpu_requests"]) for one in first["containers"]] == [("web", 1.0), ("side", 0.0)]
    assert found["pods"][1]["cpu_use"] is None  # it waits
    assert len(asked(capsys, "--pods", "-A")["pods"]) == 4
    assert main(["--pods", "--sort", "cpu-requests"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 * 3 and lines[0].split()[:3] == ["NAMESPACE", "POD", "CONTAINER"]


def test_the_lease_renews_a_number(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"holderIdentity": "c", "renewTime": rfc3339(time.time() - 5.0), "leaseDurationSeconds": 150}
    api.lists[LEASES] = [{"metadata": {"name": "c", "resourceVersion": "1"}, "spec": spec}]
    c = asked(capsys)["nodes"][2]
    assert c["state"] == "measured" and c["age"] < 60
    assert asked(capsys, "fit", "shop/web")["nodes"][1]["fits"] == 8.0  # on c, whose two Pods have ended
    assert main(["why", "web-6c5d9b7f8d-wwwww", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["accept"]["nodes"] == ["a", "c"]


DAMAGED = [
    {"carico.dev/status": "[]"},
    {"carico.dev/status": "{"},
    {"carico.dev/status": '{"time":"yesterday","ttl_s":150}'},
    {"carico.dev/status": '{"time":"2999-01-01T00:00:00Z","ttl_s":NaN}'},
    {"carico.dev/status": '{"time":"2999-01-01T00:00:00Z","ttl_s":1' + "0" * 400 + "}"},
    {"carico.dev/status": '{"time":5,"ttl_s":[],"low":{},"limiting":[1]}'},
    {"carico.dev/status": "[" * 50_000},
    {"carico.dev/pod-capacity": "much"},
    {"carico.dev/pod-capacity": "inf"},
]


@pytest.mark.parametrize("notes", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_annotations_are_no_number(
    notes: dict[str, str], api: KubeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.lists["/api/v1/nodes"][0]["metadata"]["annotations"] |= notes
    a = asked(capsys)["nodes"][0]
    assert a["pod_capacity"] is None and a["state"] in ("stale", "unpublished")
    assert main(["fit", "shop/web"]) == main(["why", "web-6c5d9b7f8d-wwwww"]) == 1


def test_texts_cannot_move_the_cursor(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    notes = api.lists["/api/v1/nodes"][0]["metadata"]["annotations"]
    notes["carico.dev/status"] = notes["carico.dev/status"].replace('"cpu"', '"\\u001b[2J"')
    api.lists["/api/v1/namespaces/shop/events"] = [{"metadata": {}, "message": "\x1b[2J"}]
    assert main([]) == 0 and main(["why", "web-6c5d9b7f8d-wwwww"]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_whoever_may_not_list_nodes_sees_its_namespace(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.forbidden |= {"/api/v1/nodes": "nodes", "/api/v1/pods": "pods"}
    assert main(["-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert {row["namespace"] for row in json.loads(out)["pods"]} == {"shop"}
    assert 'missing right: "list" on "nodes"' in err
    assert main(["fit", "shop/web"]) == 1
    assert main(["why", "web-6c5d9b7f8d-wwwww"]) == 1
    assert "kube-scheduler: 0/4 nodes are available" in capsys.readouterr().out


def test_missing_rights_are_noted(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.forbidden |= {"/api/v1/pods": "pods", LEASES: "leases"}
    assert main(["-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["nodes"][1]["cpu_requests"] == 0.0  # that Pod is in another namespace
    assert "only Pods of namespace shop are counted" in err and "Leases cannot be read" in err
    api.forbidden["/api/v1/namespaces/shop/pods"] = "pods"
    assert main([]) == 1


def test_fit_of_a_workload(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "fit", "shop/web", "--count", "8")
    assert (found["fits"], found["fit"], names(found)) == (8, True, ["a", "b", "c", "d"])
    a, b, c, d = found["nodes"]
    assert (a["fits"], a["limiting"], a["basis"], a["by_requests"]) == (8.0, "memory", "measured", None)
    assert (b["fits"], b["limiting"]) == (pytest.approx(0.4), "cpu")
    assert (c["basis"], d["basis"]) == ("stale", "unpublished")


def test_fit_of_a_manifest(api: KubeApi, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    template = {"spec": pod("x", cpu="500m")["spec"]}
    file.write_text(yaml.dump({"kind": "Deployment", "metadata": {"name": "new"}, "spec": {"template": template}}))
    found = asked(capsys, "fit", "-f", str(file))
    a = found["nodes"][0]
    assert found["workload"] == "shop/new"  # the context's namespace
    assert (a["basis"], a["by_requests"]) == ("requests", 4.0)  # 2 of 4 cores are requested
    assert main(["fit", "-f", str(file), "--count", "1000"]) == 1
    assert "1000 × shop/new does not fit" in capsys.readouterr().out
    template["spec"]["containers"] = [{"name": "silent"}]
    file.write_text(yaml.dump({"kind": "Deployment", "metadata": {"name": "new"}, "spec": {"template": template}}))
    a = asked(capsys, "fit", "-f", str(file))["nodes"][0]
    assert (a["basis"], a["by_requests"]) == ("prior", None)
    assert main(["fit"]) == main(["fit", "a", "-f", "b"]) == main(["fit", "-f", str(tmp_path / "none"), "a"]) == 2


def test_why_from_the_extender(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    refuse = [{"reason": "no room: 8 places, 8 Pods", "count": 2, "nodes": ["a", "b"]}]
    body = {"policy": "packed", "accept": {"count": 0, "nodes": []}, "refuse": refuse}
    api.objects[f"{WHY}/uid-web-6c5d9b7f8d-wwwww"] = body
    assert main(["-n", "shop", "why", "web-6c5d9b7f8d-wwwww"]) == 1
    out = capsys.readouterr().out
    assert "by the extender (policy packed):\n  a, b: no room: 8 places, 8 Pods\n  no node has room\n" in out
    assert out.endswith("kube-scheduler: 0/4 nodes are available\n")


def test_why_without_the_extender(api: KubeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "web-6c5d9b7f8d-wwwww", "-o", "json"]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["accept"]["nodes"] == ["a"]
    reasons = {row["reason"].split(":")[0]: row["nodes"] for row in found["refuse"]}
    assert reasons == {"no room for shop/web": ["b"], "stale": ["c"], "unknown": ["d"]}
    assert "the extender could not be asked" in err
    assert main(["why", "web-6c5d9b7f8d-x7k2p"]) == 0
    assert capsys.readouterr().out == "shop/web-6c5d9b7f8d-x7k2p: running on a\n"
    assert main(["why", "nobody"]) == 1
    assert main(["why", "../x"]) == main(["why"]) == 2


# ---- kubeconfigs


def config(file: Path, current: str = "", **tables: Any) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.dump({"current-context": current, **tables}))
    return file


def test_several_kubeconfigs_are_one(tmp_path: Path) -> None:
    """As in $KUBECONFIG: the first that names something decides, and paths are relative to their own file."""
    one = config(
        tmp_path / "one/config",
        "prod",
        clusters=[{"name": "c", "cluster": {"server": "https://first:6443", "certificate-authority": "ca.crt"}}],
    )
    two = config(
        tmp_path / "two/config",
        "other",
        clusters=[{"name": "c", "cluster": {"server": "https://second:6443"}}],
        users=[{"name": "u", "user": {"tokenFile": "token"}}],
        contexts=[{"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
    )
    access = from_kubeconfigs([one, two])
    assert (access.server, access.namespace) == ("https://first:6443", "shop")
    assert (access.ca_file, access.token_file) == (str(tmp_path / "one/ca.crt"), str(tmp_path / "two/token"))
    environ = {"KUBECONFIG": f"{tmp_path}/gone:{one}::{two}"}
    assert of_user(environ=environ) == access
    with pytest.raises(BadAccess, match="context 'other' is not in contexts"):
        of_user(context="other", environ=environ)


def test_without_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadAccess, match=r"no kubeconfig: .*/.kube/config does not exist"):
        of_user(environ={})
    with pytest.raises(BadAccess, match="automountServiceAccountToken"):
        of_user(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    config(
        tmp_path / ".kube/config",
        "x",
        clusters=[{"name": "c", "cluster": {"server": "https://home:6443"}}],
        contexts=[{"name": "x", "context": {"cluster": "c"}}],
    )
    assert of_user(environ={}).server == "https://home:6443"


def test_a_server_that_is_away_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    api = KubeApi()
    api.url = "http://127.0.0.1:1"
    assert main(["--kubeconfig", api.kubeconfig(tmp_path)]) == 1
    assert "http://127.0.0.1:1 cannot be reached" in capsys.readouterr().err


# ---- carico fit beside the API server


class FakeAgent:
    """Answers as an agent that has not seen the workload and measures Pods one by one."""

    def request(self, method: str, path: str) -> Any:
        room, sizes = {"cpu": 0.5, "memory": 0.5}, {"cpu": 8.0, "memory": 16.0 * GIB}
        return {"fits": 2.0, "mode": "learning", "limiting": "cpu", "room": room, "sizes": sizes}


def test_carico_fit_with_the_api_server(
    api: KubeApi, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carico_agent.node.commands.fit.ask", lambda given: FakeAgent())
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.dump({"kind": "Pod", **pod("x", cpu="500m")}))
    api.objects["/api/v1/nodes/a"] = node("a")
    command = ["fit", "-f", str(file), "--kubeconfig", api.kubeconfig(tmp_path), "--node"]
    api.lists["/api/v1/pods"] = api.lists["/api/v1/pods"][:2]
    assert carico([*command, "a"]) == 0
    out = capsys.readouterr().out
    assert "1 × shop/x fits: room for 8.0, limited by cpu" in out
    assert "(this workload has not run here: the answer uses its requests)" in out
    assert "by requests alone: 4, limited by cpu" in out
    assert carico([*command, "gone"]) == 1  # and no traceback
    assert "carico: /api/v1/nodes/gone not found" in capsys.readouterr().err
