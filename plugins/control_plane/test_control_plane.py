"""control_plane: who is found, when a weight rises and falls, and that all of it comes back."""

from dataclasses import replace

import pytest

from carico_agent.plugin_api import Refuse

from . import ControlPlaneSettings, Plugin
from .held_up import ComponentCounters, held_up
from .weights import Weight, stepped


def weight_of(folder):
    return (folder / "cpu.weight").read_text().strip()


def waits(folder, share):
    """Another minute has passed, in which it waited so much."""
    before = int((folder / "cpu.pressure").read_text().partition("total=")[2].split()[0])
    total = before + int(share * 60e6)
    (folder / "cpu.pressure").write_text(f"some avg10=0.00 total={total}\nfull avg10=0.00 total=0\n")


def run(plugin, node, *times):
    for now_s in times:
        plugin.tick(node.view(now_s), node.writer)


@pytest.fixture
def unit(node):
    return node.group("system.slice/etcd.service")


def test_a_component_that_waits_gets_more_and_gives_it_back(node, unit):
    plugin = Plugin(ControlPlaneSettings(groups={"etcd": "etcd.service"}, calm_s=120))
    run(plugin, node, 0)
    assert weight_of(unit) == "100"
    for now_s in (60, 120):
        waits(unit, 0.8)
        run(plugin, node, now_s)
    assert weight_of(unit) == "300"
    assert plugin.report()["components"]["etcd"]["held_up_ratio"] == pytest.approx(0.8)
    run(plugin, node, 180, 240)
    assert weight_of(unit) == "200"
    run(plugin, node, 300, 360)
    assert weight_of(unit) == "100"
    assert not node.journal.entries, "nothing of ours is left to put back"


def test_stopping_puts_it_back(node, unit):
    plugin = Plugin(ControlPlaneSettings(groups={"etcd": "system.slice/etcd.service"}))
    run(plugin, node, 0)
    waits(unit, 0.9)
    run(plugin, node, 60)
    assert weight_of(unit) == "200"
    node.cgroups.stop()
    assert weight_of(unit) == "100"


def test_pods_of_kube_system_are_found(node):
    folder = node.pod("kube-apiserver-a")
    node.pods = [replace(pod, namespace="kube-system") for pod in node.pods]
    node.pod("kube-scheduler-of-somebody-else")
    plugin = Plugin(ControlPlaneSettings(base={"kube-apiserver": 400}, max_factor=2))
    run(plugin, node, 0)
    assert weight_of(folder) == "400"
    for now_s in (60, 120, 180):
        waits(folder, 0.7)
        run(plugin, node, now_s)
    assert weight_of(folder) == "800", "not above max_factor"
    assert list(plugin.report()["components"]) == ["kube-apiserver"]
    assert {metric.name for metric in plugin.metrics()} == {"weight_factor", "held_up_ratio"}


def test_a_reborn_cgroup_begins_anew(node, unit):
    plugin = Plugin(ControlPlaneSettings(groups={"etcd": "etcd.service"}))
    run(plugin, node, 0)
    waits(unit, 0.9)
    run(plugin, node, 60)
    for file in unit.iterdir():
        file.unlink()
    unit.rmdir()
    run(plugin, node, 120)
    assert "does not run" in plugin.report()["missing"]["etcd"]
    node.group("system.slice/other.service")  # so that the number of the old folder is taken
    again = node.group("system.slice/etcd.service")
    run(plugin, node, 180, 240)
    assert weight_of(again) == "100"


def test_somebody_elses_value_is_left_alone(node, unit):
    plugin = Plugin(ControlPlaneSettings(groups={"etcd": "etcd.service"}))
    run(plugin, node, 0)
    waits(unit, 0.9)
    run(plugin, node, 60)
    (unit / "cpu.weight").write_text("77\n")
    waits(unit, 0.9)
    run(plugin, node, 120)
    assert weight_of(unit) == "77"
    assert "another program" in plugin.report()["components"]["etcd"]["says"]


@pytest.mark.parametrize(
    ("old", "new", "ratio"),
    [
        (None, ComponentCounters(60, 1, 1, 1), None),
        (ComponentCounters(0, 100, 50, 0), ComponentCounters(60, 90, 60, 0), None),
        (ComponentCounters(0, 100, 50, 5), ComponentCounters(60, 100, 50, 1), None),
        (ComponentCounters(0, None, None, 0), ComponentCounters(60, None, None, 6_000_000), 0.1),
        (ComponentCounters(0, 0, 0, None), ComponentCounters(60, 0, 0, None), None),
        (ComponentCounters(0, 100, 50, 0), ComponentCounters(60, 200, 60, 60_000_000), 0.1),
    ],
)
def test_held_up(old, new, ratio):
    assert held_up(old, new) == ratio


def test_thresholds():
    assert stepped(Weight(1, 0), 0.65, 60, True, 600).factor == 2
    assert stepped(Weight(1, 0), 0.65, 60, False, 600).factor == 1
    assert stepped(Weight(2, 0), 0.35, 900, True, 600) == Weight(2, 900), "between both: as it is"
    assert stepped(Weight(2, 0), None, 900, True, 600) == Weight(2, 0)


def test_refusals(node):
    with pytest.raises(Refuse, match=r"base\.etcd"):
        Plugin(ControlPlaneSettings(base={"etcd": 0}))
    (node.root / "cgroup.controllers").write_text("memory\n")
    with pytest.raises(Refuse, match="cpu controller"):
        Plugin(ControlPlaneSettings()).start(node.view(0))
