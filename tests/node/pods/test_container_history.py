"""Containers once a minute, on fake trees: who is read, what is an increase, and what ends."""

import shutil
from math import isnan

import pytest

from carico_agent.node.pods import container_history
from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.container_history import ContainerReader
from carico_agent.node.pods.pods import Member, Pod

from .trees import POD_PATHS, UID, FakeRoot

ONE, TWO = "a" * 64, "b" * 64
PATH = POD_PATHS["systemd"][0]


class Node:
    def __init__(self, root, workload):
        self.fake = FakeRoot(root, workload)
        for pid, name in ((10, ONE), (11, TWO)):
            self.set(name)
            self.fake.process(pid, f"{PATH}/cri-containerd-{name}.scope")
        self.reader = ContainerReader(Locator(root))

    def set(self, name, usec=1000, memory=5000, inactive=1000, kills=0, periods=0, throttled=0):
        path = f"{PATH}/cri-containerd-{name}.scope"
        self.fake.group(path, usec)
        quota = f"nr_periods {periods}\nnr_throttled {throttled}\n"
        if self.fake.mode == "v2":
            self.write("", path, "cpu.stat", f"usage_usec {usec}\n{quota}throttled_usec 0\n")
            self.write("", path, "memory.current", f"{memory}\n")
            self.write("", path, "memory.stat", f"anon 1\ninactive_file {inactive}\n")
            self.write("", path, "memory.events", f"oom 9\noom_kill {kills}\n")
        else:
            self.write("cpu", path, "cpu.stat", f"{quota}throttled_time 0\n")
            self.write("memory", path, "memory.usage_in_bytes", f"{memory}\n")
            self.write("memory", path, "memory.stat", f"cache 1\ntotal_inactive_file {inactive}\n")
            self.write("memory", path, "memory.oom_control", f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")

    def write(self, controller, path, name, text):
        (self.fake.mounts[controller] / path.lstrip("/") / name).write_text(text)

    def run(self, pods, start_s, seconds):
        return [found for t in range(seconds) for found in self.reader.tick(start_s + t, 1e9 + start_s + t, pods)]


@pytest.fixture(params=["v2", "v1", "hybrid"])
def node(request, tmp_path):
    return Node(tmp_path, request.param)


def pod(**more):
    members = (Member("s" * 64, "pause", 9, sandbox=True), Member(ONE, "app", 10), Member(TWO, "sidecar", 11))
    return Pod(
        UID, "web-1", "shop", UID, **{"containers": members, "cgroup": PATH, "inode": 1, "workload": "shop/web"} | more
    )


def test_a_minute(node):
    pods = {UID: pod()}
    assert node.run(pods, 0.0, 50) == []
    node.set(ONE, usec=30_001_000, memory=9000, kills=2, periods=600, throttled=60)
    found = {one.container: one for one in node.run(pods, 50.0, 25)}
    assert set(found) == {"app", "sidecar"}
    app = found["app"]
    assert (app.workload, app.pod, app.container_id) == ("shop/web", UID, ONE)
    assert app.data.cpu_cores == pytest.approx(0.5, rel=0.05)
    assert (app.data.memory_bytes, app.data.oom_kills, app.data.periods, app.data.throttled) == (8000.0, 2, 600, 60)
    assert 1e9 + 50 <= app.data.t_s < 1e9 + 75
    assert found["sidecar"].data[1:] == (0.0, 4000.0, 0, 0, 0)


def limit(node, name, quota, memory):
    path = f"{PATH}/cri-containerd-{name}.scope"
    if node.fake.mode == "v2":
        node.write("", path, "cpu.max", f"{quota or 'max'} 100000\n")
        node.write("", path, "memory.max", f"{memory or 'max'}\n")
    else:
        node.write("cpu", path, "cpu.cfs_quota_us", f"{quota or -1}\n")
        node.write("cpu", path, "cpu.cfs_period_us", "100000\n")
        node.write("memory", path, "memory.limit_in_bytes", f"{memory or 2**63 - 4096}\n")


def test_limits_are_the_kernels(node):
    limit(node, ONE, 50_000, 2**28)
    limit(node, TWO, None, None)
    pods = {UID: pod()}
    node.run(pods, 0.0, 50)
    found = {one.container: one.totals for one in node.run(pods, 50.0, 25)}
    assert (found["app"].limit_cores, found["app"].limit_bytes) == (0.5, 2.0**28)
    assert (found["sidecar"].limit_cores, found["sidecar"].limit_bytes) == (None, None)


def test_of_a_container_that_did_not_run_only_the_cpu_time_is_read(node):
    pods = {UID: pod()}
    node.run(pods, 0.0, 50)
    node.set(ONE, memory=9000, kills=2)  # nothing that can be while it sleeps
    node.set(TWO, usec=1001, memory=9000, kills=2)
    found = {one.container: one.data for one in node.run(pods, 50.0, 25)}
    assert found["app"][1:] == (0.0, 4000.0, 0, 0, 0)
    assert found["sidecar"][2:] == (8000.0, 2, 0, 0)


def test_counters_that_went_back(node):
    pods = {UID: pod()}
    node.set(ONE, usec=5000, kills=3, periods=9, throttled=9)
    node.run(pods, 0.0, 50)
    node.set(ONE, usec=10)
    app = next(one for one in node.run(pods, 50.0, 25) if one.container == "app")
    assert isnan(app.data.cpu_cores) and app.data[3:] == (0, 0, 0)


def test_a_container_that_ended_and_one_that_cannot_be_read(node):
    pods = {UID: pod()}
    node.run(pods, 0.0, 50)
    for mount in set(node.fake.mounts.values()):
        shutil.rmtree(mount / PATH.lstrip("/") / f"cri-containerd-{ONE}.scope")
    node.set(TWO, usec=2000)
    node.write("memory" if node.fake.mode != "v2" else "", f"{PATH}/cri-containerd-{TWO}.scope", "memory.stat", "x\n")
    assert node.run(pods, 50.0, 25) == []
    assert node.reader.failed == 1
    assert node.run({}, 80.0, 5) == []


def test_pods_of_the_cgroup_tree(node):
    links = node.fake.root / "var/log/containers"
    links.mkdir(parents=True)
    (links / f"web-1_shop_my-app-{ONE}.log").write_text("")
    (links / "odd").write_text("")
    node.fake.group(f"{PATH}/other")
    tree_pod = pod(containers=())
    node.run({UID: tree_pod}, 0.0, 50)
    found = [one for t in range(50, 80) for one in node.reader.tick(float(t), 0.0, {UID: tree_pod})]  # ever new tables
    assert {(one.container, one.container_id) for one in found} == {("my-app", ONE), (TWO[:12], TWO)}


def test_a_container_outside_of_any_pod(node):
    lone = Pod("/docker/x", "x", "", cgroup=f"{PATH}/cri-containerd-{ONE}.scope", inode=1, workload="x")
    node.run({"x": lone}, 0.0, 50)
    assert [one.container for one in node.run({"x": lone}, 50.0, 25)] == ["x"]


def test_bounded(node, monkeypatch):
    monkeypatch.setattr(container_history, "MAX_CONTAINERS", 1)
    node.run({UID: pod()}, 0.0, 2)
    assert node.reader.left_out == 1


def test_no_more_than_its_share_in_a_tick(node, monkeypatch):
    read = []
    monkeypatch.setattr(node.reader, "_read", lambda key, now_s, wall_s: read.append(now_s))
    members = tuple(Member(f"{n:064}", str(n), 0) for n in range(330))
    pods = {UID: pod(containers=members)}
    node.run(pods, 0.0, 300)
    assert max(map(read.count, set(read))) <= 2 + 1.5 * 330 / 60
    assert len(read) >= 4 * 330
