"""cpu_pinning: who is pinned, to which CPUs, what the others get, and that all ends as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.plugin_api import Cpu, Refuse

from . import CpuPinningSettings, Plugin
from .allocate import take

TWO_SOCKETS = [Cpu(i, i // 2, i // 4, i // 8, i // 8) for i in range(16)]  # 2 sockets × 2 L3 × 2 cores × 2 threads


def cpus_of(folder):
    return (folder / "cpuset.cpus").read_text().strip()


def run(plugin, node, *times):
    for now_s in times:
        plugin.tick(node.view(now_s), node.writer)


@pytest.mark.parametrize(
    ("free", "count", "wanted"),
    [
        (range(16), 8, range(8)),  # a whole socket
        (range(1, 16), 8, range(8, 16)),  # the other one, when the first is broken
        (range(1, 16), 4, range(4, 8)),  # a whole L3 group, in the socket that is broken already
        (range(1, 16), 2, (2, 3)),  # a whole core, likewise
        (range(1, 16), 1, (1,)),  # the thread that is alone already
        ((1, 3, 5, 7), 2, (1, 3)),  # no whole core left
        (range(2), 3, None),
    ],
)
def test_order(free, count, wanted):
    got = take(TWO_SOCKETS, frozenset(free), count)
    assert got == (None if wanted is None else frozenset(wanted))


def test_whole_cores_only():
    assert take(TWO_SOCKETS, frozenset({1, 2, 3, 5}), 2, whole_cores=True) == {2, 3}
    assert take(TWO_SOCKETS, frozenset({1, 2, 3, 5}), 3, whole_cores=True) is None
    assert take(TWO_SOCKETS, frozenset(range(16)), 3, whole_cores=True) is None


@given(free=st.sets(st.integers(0, 15)), count=st.integers(1, 16), whole=st.booleans())
def test_takes_exactly_what_is_asked_out_of_what_is_free(free, count, whole):
    got = take(TWO_SOCKETS, frozenset(free), count, whole)
    if got is not None:
        assert len(got) == count and got <= free
    elif not whole:
        assert count > len(free)


def guaranteed(node, name, cpus):
    node.pod(name, f"kubepods.slice/kubepods-pod{name}.slice", {"main": {"cpu.max": f"{cpus * 100_000} 100000"}})
    return node.root / f"kubepods.slice/kubepods-pod{name}.slice/main"


def test_guaranteed_whole_cpus_are_pinned_and_the_rest_shares(node):
    pinned, other = guaranteed(node, "db", 2), node.pod("web")
    plugin = Plugin(CpuPinningSettings())
    run(plugin, node, 0)
    assert (cpus_of(pinned), cpus_of(other)) == ("2-3", "0-1")
    rows = {row["container"]: row for row in plugin.report()["containers"]}
    assert "Guaranteed" in rows["default/db/main"]["why"] and "1 whole core" in rows["default/db/main"]["why"]
    assert rows["default/web/web"]["why"] == "shared pool"
    assert cpus_of(node.root / "kubepods.slice") == "", "only leaf groups are written"


def test_release_when_the_pod_ends(node):
    guaranteed(node, "db", 2)
    other = node.pod("web")
    plugin = Plugin(CpuPinningSettings())
    run(plugin, node, 0)
    node.end("db")
    run(plugin, node, 1)
    assert cpus_of(other) == ""
    assert {entry.knob.key for entry in node.journal.entries.values()} <= {"cpuset.cpus"}


def test_not_enough_left_is_explained(node):
    first, second = guaranteed(node, "a", 2), guaranteed(node, "b", 2)
    plugin = Plugin(CpuPinningSettings())
    run(plugin, node, 0, 1)
    assert (cpus_of(first), cpus_of(second)) == ("2-3", "0-1")
    why = {row["container"]: row["why"] for row in plugin.report()["containers"]}["default/b/main"]
    assert "wants 2 CPUs" in why and "only 1" in why


def test_rules_and_annotations(node):
    ruled = node.pod("cache-7", "ctr/cache-7")
    asking = node.pod("quick", "ctr/quick", annotations={"carico.dev/cpus": "1"})
    plugin = Plugin(CpuPinningSettings(pods={"cache-*": 2}, max_asked=1))
    run(plugin, node, 0)
    assert (cpus_of(ruled), cpus_of(asking)) == ("2-3", "1")


def test_a_pod_that_asks_gets_what_the_operator_allows(node):
    """Issue 37, 16: one label took every unreserved CPU away from all other Pods."""
    greedy = node.pod("greedy", "ctr/greedy", labels={"carico.dev/cpus": "3"})
    modest = node.pod("modest", "ctr/modest", annotations={"carico.dev/cpus": "1"})
    plugin = Plugin(CpuPinningSettings())
    run(plugin, node, 0)
    assert (cpus_of(greedy), cpus_of(modest)) == ("", "")
    plugin = Plugin(CpuPinningSettings(max_asked=2))
    run(plugin, node, 0, 1)
    assert (cpus_of(greedy), len(cpus_of(modest))) == ("0,2-3", 1)
    assert (
        "may have 2 (max_asked)" in plugin.report()["containers"][-1]["why"] + plugin.report()["containers"][0]["why"]
    )


def test_what_was_confined_before_stays_so(node):
    guaranteed(node, "db", 2)
    narrow = node.pod("narrow", files={"cpuset.cpus": "1-2"})
    hopeless = node.pod("hopeless", files={"cpuset.cpus": "3"})
    run(Plugin(CpuPinningSettings()), node, 0, 1)
    assert (cpus_of(narrow), cpus_of(hopeless)) == ("1", "3")


def test_groups_with_children_of_their_own_are_left_alone(node):
    guaranteed(node, "db", 2)
    nested = node.pod("nested", files={"cgroup.subtree_control": "cpuset cpu"})
    plugin = Plugin(CpuPinningSettings())
    run(plugin, node, 0)
    assert cpus_of(nested) == ""
    assert any("groups of its own" in row["why"] for row in plugin.report()["containers"])


def test_a_refused_pin_gives_its_cpus_back(node):
    pinned, other = guaranteed(node, "db", 2), node.pod("web")
    plugin = Plugin(CpuPinningSettings())
    run(plugin, node, 0)
    (pinned / "cpuset.cpus").write_text("0-3\n")  # somebody else decides
    run(plugin, node, 1, 2)
    assert (cpus_of(pinned), cpus_of(other)) == ("0-3", "")


@pytest.mark.parametrize(("reserved", "why"), [("9", "none of the CPUs"), ("0-3", "all CPUs are reserved")])
def test_refusals(node, reserved, why):
    with pytest.raises(Refuse, match=why):
        Plugin(CpuPinningSettings(reserved=reserved)).start(node.view(0))


def test_bad_reserved():
    with pytest.raises(Refuse, match="list of CPUs"):
        Plugin(CpuPinningSettings(reserved="first"))
