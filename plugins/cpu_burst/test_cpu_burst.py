"""cpu_burst: who gets a burst, who does not, and that it follows the quota."""

import pytest

from carico_agent.plugin_api import Refuse

from . import BURST, CpuBurstSettings, Plugin


def files(quota="50000 100000", used_s=0.0, periods=0, throttled=0):
    stat = f"usage_usec {int(used_s * 1e6)}\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 0"
    return {"cpu.max": quota, "cpu.stat": stat, BURST: "0"}


def run(node, settings, before, after, **more):
    """Two looks at one container, a window apart; what stands in cpu.max.burst then."""
    pod = node.pod("web", containers={"app": before}, **more)
    plugin = Plugin(settings)
    plugin.tick(node.view(0.0), node.writer)
    for key in ("cpu.stat", "cpu.max"):
        (pod / "app" / key).write_text(after[key] + "\n")
    plugin.tick(node.view(30.0), node.writer)
    return plugin, pod / "app"


@pytest.mark.parametrize(
    ("used_s", "throttled", "burst", "says"),
    [
        (6.0, 60, "25000", "throttled in 20% of its periods, uses 40% of its limit"),
        (6.0, 3, "0", "no burst: throttled in 1% of its periods"),
        (14.9, 290, "0", "its limit is too low"),
    ],
)
def test_only_bursts_are_helped(node, used_s, throttled, burst, says):
    plugin, app = run(node, CpuBurstSettings(), files(), files(used_s=used_s, periods=300, throttled=throttled))
    assert (app / BURST).read_text().strip() == burst
    (row,) = plugin.report()["containers"]
    assert says in row["says"]


def test_it_follows_the_quota_and_is_in_the_journal(node):
    plugin, app = run(node, CpuBurstSettings(), files(), files(used_s=6.0, periods=300, throttled=60))
    assert [(knob.key, entry.original) for knob, entry in node.journal.entries.items()] == [(BURST, "0")]
    (app / "cpu.max").write_text("30000 100000\n")
    plugin.tick(node.view(35.0), node.writer)
    assert (app / BURST).read_text().strip() == "15000"
    assert [metric.value for metric in plugin.metrics()] == [1]


def test_without_a_limit_nothing_happens(node):
    plugin, app = run(node, CpuBurstSettings(), files("max 100000"), files("max 100000", 30.0, 300, 0))
    assert plugin.report()["containers"] == [] and (app / BURST).read_text().strip() == "0"


def test_only_the_named_pods(node):
    settings = CpuBurstSettings(pods=("shop/*",))
    plugin, _ = run(node, settings, files(), files(used_s=6.0, periods=300, throttled=60))
    assert plugin.report()["containers"] == []


def test_dry_run_says_what_it_would_do(node):
    node.cgroups.dry_run = node.writer.dry_run = True
    plugin, app = run(node, CpuBurstSettings(), files(), files(used_s=6.0, periods=300, throttled=60))
    assert (app / BURST).read_text().strip() == "0"
    assert "would write '25000'" in plugin.report()["containers"][0]["says"]


def test_refuses_without_the_controller(node):
    (node.root / "cgroup.controllers").write_text("memory\n")
    with pytest.raises(Refuse, match="no cpu controller"):
        Plugin(CpuBurstSettings()).start(node.view(0.0))
