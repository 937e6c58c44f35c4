"""Names of Pods found in the cgroup tree, and what is logged when there are none."""

import os

import pytest

from carico_agent.node.pods.cgroups import layout
from carico_agent.node.pods.log_names import MAX_LOOKS, LogNames
from carico_agent.node.pods.pods import Selector
from carico_agent.node.pods.tree import Scanner

from .trees import POD_PATHS, UID, FakeRoot

OTHER = "9a1b2c3d-1111-2222-3333-444455556666"


@pytest.fixture
def fake(tmp_path):
    fake = FakeRoot(tmp_path, "v2")
    fake.group(POD_PATHS["systemd"][0])
    return fake


def scanner(fake, **more):
    return Scanner(fake.root, layout(fake.root), names=LogNames(fake.root), node_name="n1", **more)


def folder(fake, name):
    (fake.root / "var/log/pods" / name).mkdir(parents=True)


def test_names_come_from_the_kubelets_log_folders(fake):
    folder(fake, f"shop_web-6c5d9b7f8d-x7k2p_{UID}")
    for odd in ("lost+found", "a_b", f"x_y_{OTHER}"):
        folder(fake, odd)
    look = scanner(fake)
    pod = look.scan().pods[UID]
    assert (pod.namespace, pod.name, pod.workload, pod.per_node) == ("shop", "web-6c5d9b7f8d-x7k2p", "shop/web", False)
    assert look.scan().pods[UID] is pod


def test_static_pods_are_daemons(fake):
    folder(fake, f"kube-system_etcd-n1_{UID}")
    pod = scanner(fake).scan().pods[UID]
    assert (pod.workload, pod.per_node) == ("kube-system/etcd", True)


def test_selectors_work(fake):
    folder(fake, f"shop_web_{UID}")
    found = scanner(fake, selector=Selector(skip_namespaces=("shop",))).scan()
    assert not found.pods[UID].counts and found.unnamed == ""


def test_a_name_that_comes_later(fake):
    look = scanner(fake, selector=Selector(skip_names=("web",)))
    found = look.scan()
    assert found.pods[UID].counts and "no such file" in found.unnamed
    assert (found.pods[UID].workload, found.pods[UID].per_node) == ("unnamed", False)
    folder(fake, f"shop_web_{UID}")
    found = look.scan()
    assert not found.pods[UID].counts and found.unnamed == ""


def test_nobody_selects_so_nothing_is_missed(fake):
    assert scanner(fake).scan().unnamed == ""


def test_given_up_after_some_looks_but_not_for_others(fake, monkeypatch):
    names, looks = LogNames(fake.root), []
    folder(fake, f"shop_web_{OTHER}")
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: looks.append(path) or real(path))
    for _ in range(MAX_LOOKS + 20):
        assert names.find({UID}) == {}
    assert len(looks) == MAX_LOOKS
    assert "no folder" in names.trouble
    assert names.find({UID, OTHER}) == {OTHER: ("shop", "web")}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(fake):
    (fake.root / "var/log/pods").mkdir(parents=True, mode=0)
    found = scanner(fake, selector=Selector(skip_names=("x",))).scan()
    assert "permission denied" in found.unnamed
