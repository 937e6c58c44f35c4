"""From a pid to its cgroup and its numbers, on every layout and with every driver."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from carico_agent.node.pods.cgroup import CpuStat, parse_cpu_stat
from carico_agent.node.pods.cgroups import Layout, Locator, layout, parse
from carico_agent.node.pods.pods import Member, Pod
from carico_agent.node.pods.usage import PodUsage, UsageReader

from .trees import ID, POD_PATHS, UID, FakeRoot


def pod_of(*members: Member, uid: str = UID) -> Pod:
    return Pod(key=uid or "default/x", name="web", namespace="prod", uid=uid, containers=members)


@pytest.fixture(params=["v2", "v1", "hybrid"])
def fake(request, tmp_path):
    return FakeRoot(tmp_path, request.param)


def test_layout(fake):
    assert layout(fake.root).mode == fake.mode
    assert layout(fake.root / "nowhere") == Layout()


@pytest.mark.parametrize("driver", POD_PATHS)
def test_a_pod_is_the_directory_around_its_containers(fake, driver):
    pod_path, own = POD_PATHS[driver]
    fake.group(f"{pod_path}/{own}")
    fake.group(pod_path, usage_usec=5000)
    fake.process(10, f"{pod_path}/{own}")
    locator = Locator(fake.root)
    (group,) = locator.find(pod_of(Member(ID, "pause", 10, sandbox=True)))
    directory = fake.mounts[""] if fake.mode == "v2" else fake.mounts["cpu"]
    assert (group.path, group.inode) == (pod_path, os.stat(f"{directory}{pod_path}").st_ino)


@pytest.mark.parametrize(
    "path",
    [
        f"/docker/{ID}",
        f"/system.slice/docker-{ID}.scope",
        f"/docker/{ID}/init.scope",
        f"/../../system.slice/docker-{ID}.scope/system.slice/ssh.service",
    ],
)
def test_a_plain_container_is_the_directory_with_its_id(fake, path):
    fake.group(path.replace("/../..", ""))
    fake.process(10, path)
    (group,) = Locator(fake.root).find(pod_of(Member(ID, ID, 10), uid=""))
    assert ID in group.path.rpartition("/")[2]


def test_no_group_of_its_own_or_no_process(fake):
    fake.process(10, "/")
    locator = Locator(fake.root)
    assert locator.find(pod_of(Member("x", "x", 10), uid="")) == ()
    assert locator.find(pod_of(Member("x", "x", 11), uid="")) == ()


def test_start_time(fake):
    fake.process(10, "/x")
    assert Locator(fake.root).started_s(10) == 1700000042.0
    assert Locator(fake.root).started_s(11) == 0.0


def placed(locator: Locator, pod: Pod) -> Pod:
    group = locator.find(pod)[0]
    return replace(pod, cgroup=group.path, inode=group.inode)


def test_usage(fake):
    pod_path, own = POD_PATHS["systemd"]
    fake.group(f"{pod_path}/{own}")
    fake.group(pod_path, usage_usec=5000)
    fake.process(10, f"{pod_path}/{own}")
    locator = Locator(fake.root)
    pod = placed(locator, pod_of(Member(ID, "pause", 10)))
    pressure = (None, None) if fake.mode == "v1" else (70, 80)
    reader = UsageReader(locator)
    assert reader.read({pod.key: pod}, 1.0) == {pod.key: PodUsage(1.0, 5000, 10, 4, 99, 4096, *pressure)}
    reader.close()


def test_usage_of_containers_without_a_pod_directory_is_their_sum(fake):
    for pid, name in ((10, "s"), (11, "c")):
        fake.group(f"/k8s.io/{name}")
        fake.process(pid, f"/k8s.io/{name}")
    locator = Locator(fake.root)
    pod = placed(locator, pod_of(Member("s", "s", 10), Member("c", "c", 11)))
    reader = UsageReader(locator)
    usage = reader.read({pod.key: pod}, 1.0)[pod.key]
    assert (usage.cpu_usage_usec, usage.memory_current) == (2000, 8192)
    reader.close()


def test_counters_are_held_when_they_go_back(fake):
    fake.group("/docker/x", usage_usec=5000)
    fake.process(10, "/docker/x")
    locator = Locator(fake.root)
    pod = placed(locator, pod_of(Member("x", "x", 10), uid=""))
    reader = UsageReader(locator)
    seen = []
    for usec in (5000, 4999, 5001):
        fake.group("/docker/x", usage_usec=usec)
        seen.append(reader.read({pod.key: pod}, 1.0)[pod.key].cpu_usage_usec)
    assert seen == [5000, 5000, 5001]
    reader.close()


def test_descriptors_are_kept_and_closed(fake):
    fake.group("/docker/x")
    fake.process(10, "/docker/x")
    locator = Locator(fake.root)
    pod = placed(locator, pod_of(Member("x", "x", 10), uid=""))
    reader, before = UsageReader(locator), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        reader.read({pod.key: pod}, 1.0)
    kept = len(os.listdir("/proc/self/fd")) - before
    assert kept == {"v2": 4, "v1": 3, "hybrid": 5}[fake.mode]
    reader.read({}, 2.0)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_recreated_group_is_another_one(fake):
    fake.group("/docker/x", usage_usec=5000)
    fake.process(10, "/docker/x")
    locator = Locator(fake.root)
    pod = placed(locator, pod_of(Member("x", "x", 10), uid=""))
    reader = UsageReader(locator)
    reader.read({pod.key: pod}, 1.0)
    for mount in set(fake.mounts.values()):
        (mount / "docker").rename(mount / "old")  # keeps the old inode in use, so that the new one differs
    fake.group("/docker/x", usage_usec=10)
    again = placed(locator, pod)
    assert again.inode != pod.inode
    assert reader.read({again.key: again}, 2.0)[pod.key].cpu_usage_usec == 10
    reader.close()


def test_the_end_of_a_real_group_is_the_end_of_the_pod():
    """A kept descriptor of a removed cgroup answers ENODEV: left out, not failed. Needs a writable cgroup tree."""
    locator = Locator(Path("/"))
    name = f"/carico-test-{os.getpid()}"
    mounts = [*locator.layout.controllers.values(), *filter(None, [locator.layout.unified])]
    folders = [Path(f"/{mount}{name}") for mount in dict.fromkeys(mounts)]
    try:
        for folder in folders:
            folder.mkdir()
    except OSError as error:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"cannot make a cgroup here: {error}")
    reader = UsageReader(locator)
    try:
        group = locator.at(name)
        pod = Pod("x", "x", "", cgroup=name, inode=group.inode)
        assert reader.read({"x": pod}, 1.0)["x"].cpu_usage_usec is not None
    finally:
        for folder in folders:
            folder.rmdir()
    assert (reader.read({"x": pod}, 2.0), reader.failed) == ({}, 0)
    reader.close()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b"usage_usec 5\nuser_usec 3\nsystem_usec 2\n", {"usage_usec": 5}),  # v2, cpu controller not enabled
        (
            b"usage_usec 5\nuser_usec 3\nsystem_usec 2\nnice_usec 0\ncore_sched.force_idle_usec 0\nnr_periods 1\n"
            b"nr_throttled 1\nthrottled_usec 9\nnr_bursts 0\nburst_usec 0\n",
            {"usage_usec": 5, "nr_periods": 1, "nr_throttled": 1, "throttled_usec": 9},
        ),
        (
            b"nr_periods 0\nnr_throttled 0\nthrottled_time 0\nwait_sum 12\n",
            {"nr_periods": 0, "nr_throttled": 0, "throttled_usec": 0},
        ),
        (b"", {}),
    ],
)
def test_cpu_stat_of_odd_kernels(text, values):
    assert parse_cpu_stat(text) == CpuStat(**values)


def test_proc_cgroup_with_odd_lines():
    assert parse("0::/../x (deleted)\n") == {"": "/x"}
    assert parse("1:name=systemd:/\n") == {"name=systemd": "/"}
