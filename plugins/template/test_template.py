"""A plugin is tested with a View of plain values and a writer that remembers. Copy this file with the folder."""

import pytest

from carico_agent.plugin_api import CgroupUsage, NodeInfo, Outcome, PodView, Refuse, View

from . import Plugin, TemplateSettings

BIG = PodView("k1", "big", "default", "u1", "/cg/big", 11, usage=CgroupUsage(memory_current=3 << 30))
SMALL = PodView("k2", "small", "default", "u2", "/cg/small", 12, usage=CgroupUsage(memory_current=1 << 20))
BLIND = PodView("k3", "blind", "default", "u3", "/cg/blind", 13)


class Rememberer:
    dry_run = False

    def __init__(self):
        self.changes = []

    def write(self, changes):
        self.changes += changes
        return [Outcome(change, "written") for change in changes]


def view(*pods, controllers="memory"):
    return View(0.0, NodeInfo(cores=2), pods, lambda cgroup, key: controllers)


def test_lists_large_pods_and_writes_nothing_by_default():
    plugin, writer = Plugin(TemplateSettings()), Rememberer()
    plugin.tick(view(BIG, SMALL, BLIND), writer)
    assert plugin.report()["large"] == {"default/big": 3 << 30}
    assert writer.changes == []
    assert [(m.name, m.value) for m in plugin.metrics()] == [("large_pods", 1)]


def test_asks_for_memory_back_when_told_to():
    plugin, writer = Plugin(TemplateSettings(reclaim_bytes=4096)), Rememberer()
    plugin.tick(view(BIG, SMALL), writer)
    assert [(c.cgroup, c.inode, c.key, c.value) for c in writer.changes] == [("/cg/big", 11, "memory.reclaim", "4096")]


def test_refuses_without_cgroup_v2():
    with pytest.raises(Refuse, match="cgroup v2"):
        Plugin(TemplateSettings()).start(view(controllers=None))
