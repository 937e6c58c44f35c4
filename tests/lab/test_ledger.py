"""The ledger against a plain recount, whatever the order of events."""

from math import isnan

from hypothesis import given
from hypothesis import strategies as st

from carico_agent.schedule.policy import LONGEST_START_S, MOST_KINDS, Ledger, NodeState, Place

EVENTS = st.lists(
    st.tuples(st.sampled_from(["put", "run", "end"]), st.integers(0, 6), st.sampled_from("ab"), st.sampled_from("xy"))
)


@given(EVENTS)
def test_counts_are_a_recount(events: list[tuple[str, int, str, str]]) -> None:
    ledger, truth = Ledger(proof_s=1e9), {}
    for what, pod, node, kind in events:
        if what == "end":
            ledger.release(str(pod))
            truth.pop(pod, None)
            continue
        old = truth.get(pod)
        running = what == "run" or bool(old and old[0] == node and old[2])
        truth[pod] = (node, kind, running)
        ledger.put(str(pod), Place(node, kind, what == "run"), now_s=1.0)
    for name in "ab":
        view = NodeState(name)
        ledger.show(view, now_s=2.0)
        here = [running for node, _, running in truth.values() if node == name]
        assert (view.assigned, view.starting, view.unprofiled) == (len(here), here.count(False), len(here))


def test_a_kind_becomes_known_after_it_has_run_for_a_while() -> None:
    ledger, view = Ledger(proof_s=10.0), NodeState("a")
    ledger.put("1", Place("a", "x"), 0.0)
    ledger.show(view, 100.0)
    assert view.unprofiled == 1 and "x" not in view.known  # it never started
    ledger.put("1", Place("a", "x", running=True), 100.0)
    ledger.show(view, 109.0)
    assert view.unprofiled == 1
    ledger.show(view, 110.0)
    assert view.unprofiled == 0 and "x" in view.known
    ledger.release("1")
    ledger.put("2", Place("a", "x"), 200.0)
    ledger.show(view, 200.0)
    assert view.unprofiled == 0


def test_a_snapshot_replaces_all_but_open_assumptions() -> None:
    ledger, view = Ledger(), NodeState("a")
    ledger.put("gone", Place("a"))
    ledger.put("stays", Place("a"))
    ledger.put("assumed", Place("a", until_s=50.0))
    ledger.replace([("stays", Place("a", running=True)), ("new", Place("a"))], now_s=10.0)
    ledger.show(view, 10.0)
    assert (view.assigned, view.starting) == (3, 2)
    assert ledger.expire(51.0) == ["assumed"]


def test_a_confirmed_place_does_not_expire() -> None:
    ledger = Ledger()
    ledger.put("1", Place("a", until_s=5.0))
    ledger.put("1", Place("a"))
    ledger.put("1", Place("a", until_s=6.0))
    assert ledger.expire(1e9) == [] and len(ledger) == 1


def test_memory_is_bounded_and_a_node_can_go() -> None:
    ledger, view = Ledger(proof_s=0.0), NodeState("a")
    for i in range(3 * MOST_KINDS):
        ledger.put(str(i), Place("a", f"kind-{i}", running=True), float(i))
        ledger.show(view, float(i))
        ledger.release(str(i))
    assert len(view.known) == MOST_KINDS
    ledger.put("p", Place("a"))
    ledger.drop("a")
    ledger.show(view, 0.0)
    assert view.assigned == 1 and len(ledger) == 1  # it may outlive its Node object, and the node may come back
    ledger.release("p")
    ledger.drop("a")
    assert not ledger._nodes


def test_how_long_pods_start_and_run_is_learned_from_those_seen_to_do_both() -> None:
    ledger, view = Ledger(), NodeState("a")
    ledger.put("1", Place("a", until_s=30.0), 0.0)  # assumed, then bound: it has been starting since it was assumed
    ledger.put("1", Place("a"), 1.0)
    ledger.put("1", Place("a", running=True), 3.0)
    ledger.put("1", Place("a", running=True), 4.0)
    ledger.show(view, 4.0)
    assert isnan(view.starting_share)
    ledger.release("1", ended_s=12.0)
    ledger.show(view, 12.0)
    assert view.starting_share == 3 / 12
    ledger.put("met running", Place("a", running=True), 20.0)
    ledger.release("met running", ended_s=21.0)
    ledger.put("vanishes", Place("a"), 20.0)
    ledger.release("vanishes")
    ledger.show(view, 30.0)
    assert view.starting_share == 3 / 12
    ledger.drop("a")
    ledger.show(view, 30.0)
    assert isnan(view.starting_share)


def test_a_pod_that_never_starts_does_not_keep_others_from_starting() -> None:
    ledger, view = Ledger(), NodeState("a")
    ledger.put("stuck", Place("a"), 0.0)
    ledger.show(view, LONGEST_START_S)
    assert (view.assigned, view.starting) == (1, 1)
    ledger.show(view, LONGEST_START_S + 1)
    assert (view.assigned, view.starting) == (1, 0)
    ledger.put("stuck", Place("a", running=True), 900.0)
    ledger.release("stuck", ended_s=905.0)
    ledger.show(view, 905.0)
    assert view.assigned == 0 and isnan(view.starting_share)
