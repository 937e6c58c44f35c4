"""The view from the runtime's own types, on a fake root."""

import os

from carico_agent.node.plugin_host.view import ViewMaker
from carico_agent.node.pods.pods import Member, Pod
from carico_agent.node.pods.usage import PodUsage
from carico_agent.plugin_api import Stall

POD = "/kubepods.slice/kubepods-pod11111111_2222.slice"
BOX = f"{POD}/cri-containerd-abc123.scope"


def node(root, v2=True):
    for path in (BOX + "/inner",):
        os.makedirs(f"{root}/sys/fs/cgroup{path}")
    if v2:
        (root / "sys/fs/cgroup/cgroup.controllers").write_text("cpu memory\n")
    (root / "proc/41").mkdir(parents=True)
    (root / "proc/41/cgroup").write_text(f"0::{BOX}/inner\n")
    (root / "proc/meminfo").write_text("MemTotal: 1024 kB\nSwapTotal: 0 kB\n")
    inode = os.stat(f"{root}/sys/fs/cgroup{POD}").st_ino
    members = (Member("abc123", "main", 41), Member("pause9", "pause", 40, sandbox=True), Member("dead", "late", 99))
    return {
        "k": Pod("k", "web", "default", "11111111-2222", members, cgroup=POD, inode=inode),
        "new": Pod("new", "new", "default"),
    }


def test_pods_containers_and_counters(tmp_path):
    pods = node(tmp_path)
    usage = {"k": PodUsage(5.0, 100, 10, 3, 7, 4096, 55, 66)}
    view = ViewMaker(lambda: pods, lambda: usage, lambda: {"pod_capacity": 3}, str(tmp_path))()
    [pod] = view.pods  # the other one has no cgroup yet
    assert (pod.full_name, pod.qos, pod.cgroup) == ("default/web", "guaranteed", f"{tmp_path}/sys/fs/cgroup{POD}")
    assert (pod.usage.read_s, pod.usage.nr_throttled, pod.usage.memory_current) == (5.0, 3, 4096)
    assert pod.usage.pressure == {"cpu": Stall(55), "memory": Stall(66)}
    [container] = pod.containers  # neither the sandbox nor one that has ended
    assert container.cgroup == f"{tmp_path}/sys/fs/cgroup{BOX}"  # a systemd inside lives further down
    assert container.inode == os.stat(container.cgroup).st_ino and container.pid == 41
    assert view.status == {"pod_capacity": 3} and view.node.memory_total_bytes == 1 << 20


def test_no_pods_without_pure_v2(tmp_path):
    pods = node(tmp_path, v2=False)
    assert ViewMaker(lambda: pods, dict, root=str(tmp_path))().pods == ()
    asked: list[bool] = []
    ViewMaker(lambda: pods, lambda: asked.append(True) or {}, root=str(tmp_path))()
    assert asked == []  # nobody sees the counters, so nobody has them read


def test_the_dead_are_forgotten(tmp_path):
    pods = node(tmp_path)
    maker = ViewMaker(lambda: pods, dict, root=str(tmp_path))
    maker()
    pods.clear()
    assert maker().pods == () and maker._places == {}
