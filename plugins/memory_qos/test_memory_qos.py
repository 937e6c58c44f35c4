"""memory_qos: the formula, where its numbers come from, when it says no, and that it takes back what hurts."""

from dataclasses import replace

import pytest

from carico_agent.plugin_api import Refuse

from . import MemoryQosSettings, Plugin
from .formula import Sizes, class_of, memory_high, protection
from .guard import Guard, Signs, Tolerance

MI = 1 << 20


def high_of(folder):
    return (folder / "memory.high").read_text().strip()


def run(plugin, node, *times):
    for now_s in times:
        plugin.tick(node.view(now_s), node.writer)


@pytest.mark.parametrize(
    ("request_", "limit", "factor", "wanted"),
    [
        (100 * MI, 200 * MI, 0.9, 190 * MI),
        (100 * MI, 200 * MI, 1.0, 200 * MI),
        (100 * MI, 200 * MI, 0.0, None),  # not above the request
        (200 * MI, 200 * MI, 0.9, None),  # Guaranteed
        (0, 100 * MI, 0.5, 50 * MI),
        (100 * MI, None, 0.5, 562 * MI),  # the node's 1 GiB stands in for the limit
        (1000, 10_000, 0.9, 8192),  # whole pages
    ],
)
def test_kep_2570(request_, limit, factor, wanted):
    assert memory_high(request_, limit, 1 << 30, factor, 4096) == wanted


def test_protection_by_class():
    assert protection(Sizes(100 * MI, 100 * MI, ""), "guaranteed", 4096) == ("memory.min", 100 * MI)
    assert protection(Sizes(100 * MI, None, ""), "burstable", 4096) == ("memory.low", 100 * MI)
    assert protection(Sizes(100 * MI, None, ""), "besteffort", 4096) is None
    assert [class_of(s) for s in (None, Sizes(1, 1, ""), Sizes(1, 2, ""))] == ["besteffort", "guaranteed", "burstable"]


def test_configured_request_and_memory_max(node):
    pod = node.pod("web-1", files={"memory.max": str(200 * MI)})
    plugin = Plugin(MemoryQosSettings(requests={"web-*": "100Mi"}))
    run(plugin, node, 0)
    assert high_of(pod) == str(190 * MI)
    assert plugin.report()["pods"][0]["source"] == "configuration"


def test_annotation_and_a_nonsense_annotation(node):
    good = node.pod("good", annotations={"carico.dev/memory-request": "100Mi", "carico.dev/memory-limit": "200Mi"})
    bad = node.pod("bad", annotations={"carico.dev/memory-request": "a lot"})
    plugin = Plugin(MemoryQosSettings())
    run(plugin, node, 0)
    assert (high_of(good), high_of(bad)) == (str(190 * MI), "max")


def test_guaranteed_pod_has_no_memory_high_but_protection(node):
    pod = node.pod("db", "kubepods.slice/kubepods-poddb.slice", files={"memory.max": str(64 * MI)})
    plugin = Plugin(MemoryQosSettings(protect=True))
    run(plugin, node, 0)
    assert high_of(pod) == "max"
    assert (pod / "memory.min").read_text().strip() == str(64 * MI)
    assert (pod.parent / "memory.min").read_text().strip() == str(64 * MI)
    assert plugin.report()["pods"][0]["notes"] == []


def protected(node, path, key="memory.low"):
    return int((node.root / path / key).read_text())


def test_requests_of_the_api_server_are_protected_up_to_the_root(node):
    """Each group above has the sum of what is below it, and its own value back when no protected Pod is there."""
    whole, burstable = "kubepods.slice", "kubepods.slice/kubepods-burstable.slice"
    for name, size in (("a", 64), ("b", 32)):
        node.pod(name, f"{burstable}/{name}", memory_request=size * MI, memory_limit=2 * size * MI)
    exact = node.pod("c", f"{whole}/c", memory_request=16 * MI, memory_limit=16 * MI)
    plugin = Plugin(MemoryQosSettings(protect=True))
    run(plugin, node, 0)
    assert [protected(node, f"{burstable}/{name}") for name in "ab"] == [64 * MI, 32 * MI]
    assert (protected(node, burstable), protected(node, whole)) == (96 * MI, 96 * MI)
    assert protected(node, whole, "memory.min") == 16 * MI == int((exact / "memory.min").read_text())
    assert {pod["source"] for pod in plugin.report()["pods"]} == {"the API server"}
    journalled = {(knob.cgroup, knob.key, entry.original) for knob, entry in node.journal.entries.items()}
    assert (str(node.root / whole), "memory.min", "0") in journalled
    assert (str(node.root / burstable), "memory.low", "0") in journalled
    node.end("a")
    run(plugin, node, 1)
    assert (protected(node, burstable), protected(node, whole)) == (32 * MI, 32 * MI)
    node.end("b")
    run(plugin, node, 2)
    assert (protected(node, burstable), protected(node, whole)) == (0, 0)
    assert protected(node, whole, "memory.min") == 16 * MI


def test_a_group_that_another_program_protects_enough_is_left_alone(node):
    node.group("kubepods.slice/kubepods-burstable.slice", {"memory.low": str(500 * MI)})
    node.pod("a", memory_request=64 * MI)
    plugin = Plugin(MemoryQosSettings(protect=True))
    run(plugin, node, 0)
    assert protected(node, "kubepods.slice/kubepods-burstable.slice") == 500 * MI
    assert protected(node, "kubepods.slice") == 64 * MI


def test_protection_that_a_group_above_does_not_allow_is_named(node):
    node.pod("a", memory_request=64 * MI)
    node.cgroups.dry_run = node.writer.dry_run = True
    plugin = Plugin(MemoryQosSettings(protect=True))
    run(plugin, node, 0)
    assert any("has no effect" in note for note in plugin.report()["pods"][0]["notes"])


def test_observed_working_set_stands_in(node):
    stat = f"anon {20 * MI}\nfile {80 * MI}\ninactive_file {60 * MI}"
    pod = node.pod("job", files={"memory.current": str(160 * MI), "memory.stat": stat, "memory.max": str(300 * MI)})
    plugin = Plugin(MemoryQosSettings(observe_s=60, margin_ratio=0.0, factor=0.5))
    run(plugin, node, 0, 59)
    assert high_of(pod) == "max"
    run(plugin, node, 61)
    assert high_of(pod) == str(200 * MI)  # working set 100 MiB, half way to 300


def test_no_swap_and_mostly_anonymous_is_refused_unless_forced(node):
    node.facts = replace(node.facts, swap_total_bytes=0)
    pod = node.pod("app", files={"memory.stat": f"anon {90 * MI}\nfile {10 * MI}", "memory.max": str(200 * MI)})
    settings = MemoryQosSettings(requests={"*": "100Mi"})
    careful = Plugin(settings)
    run(careful, node, 0)
    assert high_of(pod) == "max"
    assert "no swap" in careful.report()["pods"][0]["says"]
    run(Plugin(replace(settings, force_without_swap=True)), node, 1)
    assert high_of(pod) == str(190 * MI)


def hurt(pod, t, full_usec=0, pgscan=0, pgsteal=0, current=190 * MI):
    (pod / "memory.events").write_text(f"high {t * 50}\n")
    (pod / "memory.pressure").write_text(f"some avg10=0 total={full_usec}\nfull avg10=0 total={full_usec}\n")
    (pod / "memory.stat").write_text(f"anon 0\nfile {MI}\npgscan {pgscan}\npgsteal {pgsteal}\n")
    (pod / "memory.current").write_text(f"{current}\n")


@pytest.mark.parametrize(
    "signs", [{"full_usec": 400_000}, {"pgscan": 5000, "pgsteal": 10}, {"pgscan": 1}], ids=["full", "scan", "stuck"]
)
def test_harm_is_undone_and_the_pod_left_alone(node, signs):
    pod = node.pod("web", files={"memory.max": str(200 * MI)})
    plugin = Plugin(MemoryQosSettings(requests={"*": "100Mi"}, back_off_s=100))
    run(plugin, node, 0)
    assert high_of(pod) == str(190 * MI)
    for t in range(1, 6):
        hurt(pod, t, **{key: value * t for key, value in signs.items()})
        run(plugin, node, t)
        if high_of(pod) == "max":
            break
    assert high_of(pod) == "max" and plugin.undone == 1
    assert not node.journal.entries, "what was undone is not to be restored again"
    run(plugin, node, t + 50)
    assert high_of(pod) == "max", "left alone"
    run(plugin, node, t + 101)
    assert high_of(pod) == str(190 * MI), "tried again after the pause"


def test_no_harm_is_seen_while_memory_high_is_not_met(node):
    guard = Guard(Tolerance(0.1, 1000, 0.1))
    assert not any(guard.harm(Signs(t, 7, t * 900_000, t * 9000, 0, MI), MI) for t in range(10))


def test_reclaim_mode_leaves_nothing_behind(node):
    pod = node.pod("web", files={"memory.max": str(200 * MI), "memory.current": str(198 * MI)})
    run(Plugin(MemoryQosSettings(mode="reclaim", requests={"*": "100Mi"}, reclaim_step_bytes=4 * MI)), node, 0)
    assert (pod / "memory.reclaim").read_text().strip() == str(4 * MI)
    assert high_of(pod) == "max" and not node.journal.entries


def test_bad_amounts_and_a_missing_controller_are_refused(node):
    with pytest.raises(Refuse, match="256Mi"):
        Plugin(MemoryQosSettings(requests={"web": "many"}))
    (node.root / "cgroup.controllers").write_text("cpu\n")
    with pytest.raises(Refuse, match="memory controller"):
        Plugin(MemoryQosSettings()).start(node.view(0))
