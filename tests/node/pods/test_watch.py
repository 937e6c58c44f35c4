"""Which source is used, and what the rest of the agent sees, without any containerd."""

import shutil
import socket
import time

import pytest

from carico_agent import settings
from carico_agent.node.pods.watch import NO_RUNTIME, USUAL_SOCKETS, discover, find_socket

from .conftest import running, until
from .trees import POD_PATHS, UID, FakeRoot


def configured(root, **containerd):
    return settings.parse({"node": {"root": str(root)}, "containerd": {"socket": f"{root}/none.sock", **containerd}})


async def test_a_machine_with_nothing_of_the_workload_says_so(tmp_path):
    async with running(configured(tmp_path)) as runtime:
        await until(lambda: runtime.condition == NO_RUNTIME)
        assert (runtime.count, runtime.source, dict(runtime.pods)) == (0, "none", {})


@pytest.mark.long
async def test_pods_come_and_go_in_the_tree(tmp_path):
    fake = FakeRoot(tmp_path, "v2")
    pod_path, _ = POD_PATHS["systemd"]
    async with running(configured(tmp_path)) as runtime:
        received = []
        runtime.listen(received.append)
        await until(lambda: runtime.condition != "starting")  # what the first look finds is no churn
        assert runtime.source == "none"
        fake.group(pod_path)
        await until(lambda: runtime.count == 1)
        assert (runtime.source, list(runtime.pods)) == ("cgroups", [UID])
        assert runtime.churn_until_s > time.monotonic()
        assert runtime.read_usage(1.0)[UID].memory_current == 4096
        shutil.rmtree(f"{tmp_path}/sys/fs/cgroup{pod_path}")
        await until(lambda: runtime.count == 0)
        assert [(e.topic, e.pod, e.count, e.churn) for e in received] == [
            ("/cgroups/create", UID, 1, True),
            ("/cgroups/delete", UID, 0, True),
        ]
        assert runtime.log.recent() == received


async def test_a_socket_that_nobody_serves_is_said_and_the_tree_is_used(tmp_path):
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        fake = FakeRoot(tmp_path / "root", "v2")
        fake.group(POD_PATHS["cgroupfs"][0])
        async with running(configured(tmp_path / "root", socket=str(path))) as runtime:
            await until(lambda: "Connection refused" in runtime.condition)
            assert (runtime.source, runtime.count) == ("cgroups", 1)


@pytest.mark.parametrize("place", USUAL_SOCKETS)
def test_the_usual_places_below_the_root(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)  # a socket path has 107 bytes
    path = tmp_path / place.lstrip("/")
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place.lstrip("/"))
        assert find_socket(settings.parse({"node": {"root": str(tmp_path)}})) == str(path)
        path.unlink()
        path.write_text("a file is not a socket")
        assert find_socket(settings.parse({"containerd": {"socket": str(path)}})) == ""


def test_the_settings_have_examples():
    assert "[containerd]" in settings.example() and "[pods]" in settings.example()


def test_processes_where_they_are_configured(tmp_path):
    tree = FakeRoot(tmp_path, "v2")
    for name in ("nginx.service", "ssh.service", "worker@1.service"):
        tree.group(f"/system.slice/{name}", usage_usec=5000)
    tree.group("/".join(POD_PATHS["systemd"]))  # containers are not looked for
    wanted = {"units": ["nginx.service", "worker@*"]}
    pods = {"skip_names": ["worker@*"], "churn_s": 7.0}
    runtime = discover(settings.parse({"node": {"root": str(tmp_path)}, "processes": wanted, "pods": pods}))
    runtime.scan()
    assert (runtime.source, runtime.count, len(runtime.pods)) == ("processes", 1, 2)
    before_s = time.monotonic()
    shutil.rmtree(tmp_path / "sys/fs/cgroup/system.slice/nginx.service")
    runtime.scan()
    assert runtime.count == 0
    assert runtime.churn_until_s >= before_s + 7.0
