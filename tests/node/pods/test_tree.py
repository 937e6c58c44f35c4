"""Pods from the names of cgroups."""

import os
from unittest import mock

import pytest

from carico_agent.node.pods.cgroups import layout
from carico_agent.node.pods.pods import Selector
from carico_agent.node.pods.tree import FoundGroup, Scanner

from .trees import ID, POD_PATHS, UID, FakeRoot


@pytest.fixture(params=["v2", "v1", "hybrid"])
def fake(request, tmp_path):
    return FakeRoot(tmp_path, request.param)


def scan(fake: FakeRoot, **more) -> FoundGroup:
    return Scanner(fake.root, layout(fake.root), ("default", "k8s.io"), **more).scan()


@pytest.mark.parametrize("driver", POD_PATHS)
def test_kubernetes_pods(fake, driver):
    pod_path, own = POD_PATHS[driver]
    fake.group(f"{pod_path}/{own}")
    fake.group(f"{pod_path}/{'e' * 64}")
    found = scan(fake)
    assert list(found.pods) == [UID]
    pod = found.pods[UID]
    assert (pod.cgroup, pod.uid, pod.counts, pod.inode > 0) == (pod_path, UID, True, True)


@pytest.mark.parametrize(
    "path",
    [
        f"/docker/{ID}",
        f"/system.slice/docker-{ID}.scope",
        f"/system.slice/cri-containerd-{ID}.scope",
        f"/machine.slice/libpod-{ID}.scope",
        f"/libpod_parent/{ID}",
        "/default/my-container",
        f"/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{'a' * 64}.scope",
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope",
    ],
)
def test_containers_outside_of_pods(fake, path):
    fake.group(path)
    assert len(scan(fake).pods) == 1


def test_a_machine_without_containers(fake):
    for path in (
        "/system.slice/ssh.service",
        "/user.slice/user-1000.slice/session-1.scope",
        "/init.scope",
        f"/machine.slice/libpod-conmon-{ID}.scope",
        "/kubepods.slice/kubepods-burstable.slice",
    ):
        fake.group(path)
    assert scan(fake).pods == {}


def test_holders_tell_an_empty_container_host_from_a_plain_machine(fake):
    fake.group("/system.slice/ssh.service")
    assert scan(fake).holders == ()
    fake.group("/kubepods.slice")
    assert scan(fake).holders == ("/kubepods.slice",)


def test_selectors_know_names_only(fake):
    fake.group("/default/skipped")
    fake.group("/default/kept")
    found = scan(fake, selector=Selector(skip_names=("skip*",)))
    assert {pod.name: pod.counts for pod in found.pods.values()} == {"skipped": False, "kept": True}


def test_nothing_mounted(tmp_path):
    assert Scanner(tmp_path, layout(tmp_path)).scan().pods == {}


def test_what_is_known_is_kept_and_what_was_recreated_is_not(fake):
    fake.group("/docker/" + ID)
    scanner = Scanner(fake.root, layout(fake.root))
    (first,), (second,) = scanner.scan().pods.values(), scanner.scan().pods.values()
    assert first is second
    for mount in set(fake.mounts.values()):
        (mount / "docker" / ID).rename(mount / "docker" / "old")  # keeps the old inode in use
    assert scanner.scan().pods == {}
    fake.group("/docker/" + ID)
    (third,) = scanner.scan().pods.values()
    assert third.key == first.key and third.inode != first.inode


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a folder of somebody else is made")
def test_a_user_makes_no_pods(fake):
    """120 empty folders in the part of the tree that systemd hands to a user closed the node."""
    own = "/user.slice/user-1234.slice/user@1234.service"
    for number in range(120):
        fake.group(f"{own}/kubepods.slice/pod{number:08x}-0000-4000-8000-000000000000")
    fake.group(f"/kubepods.slice/pod{UID}")
    fake.group(f"/kubepods.slice/pod{'f' * 8}")
    for mount in fake.mounts.values():
        for folder in [mount / own.lstrip("/"), *(mount / own.lstrip("/")).rglob("*")]:
            os.chown(folder, 1234, 1234)
        if (mount / "kubepods.slice").exists():
            os.chown(mount / f"kubepods.slice/pod{'f' * 8}", 1234, 1234)
    assert list(scan(fake).pods) == [UID]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it becomes somebody else")
def test_an_agent_of_a_user_counts_the_users_containers(fake):
    """Rootless Podman: the group is the user's own, and so is the agent."""
    path = f"/user.slice/user-1234.slice/user@1234.service/user.slice/libpod-{ID}.scope"
    fake.group(path)
    for mount in fake.mounts.values():
        folder = mount / "user.slice/user-1234.slice/user@1234.service"
        for one in [folder, *folder.rglob("*")]:
            os.chown(one, 1234, 1234)
    assert list(scan(fake).pods) == []
    with mock.patch("os.geteuid", return_value=1234):
        assert list(scan(fake).pods) == [path]
