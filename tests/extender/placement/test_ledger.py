"""The ledger against a plain recount, whatever the order of events."""

from math import isnan

from hypothesis import given
from hypothesis import strategies as st

from carico_agent.extender.nodes import NodeState
from carico_agent.extender.placement.ledger import REMEMBER_S, Ledger
from carico_agent.extender.placement.lifecycle import PodEvent, PodState, after
from carico_agent.extender.placement.place import Place
from carico_agent.extender.placement.tally import LONGEST_START_S, MAX_WORKLOADS

ASSUME, BOUND, RUNNING, GONE = PodEvent.ASSUME, PodEvent.SEEN_BOUND, PodEvent.SEEN_RUNNING, PodEvent.GONE
HERE = Place("a")
EVENTS = st.lists(st.tuples(st.sampled_from(PodEvent), st.integers(0, 6), st.sampled_from("ab"), st.sampled_from("xy")))


def shown(ledger: Ledger, now_s: float, name: str = "a") -> NodeState:
    state = NodeState(name)
    ledger.show(state, now_s)
    return state


@given(EVENTS)
def test_counts_are_a_recount(events: list[tuple[PodEvent, int, str, str]]) -> None:
    """Against states and nodes kept per Pod without any sums."""
    ledger = Ledger(profile_s=1e9)
    states: dict[int, PodState | None] = {}
    nodes: dict[int, str] = {}
    for event, pod, node, workload in events:
        states[pod] = state = after(states.get(pod), event)
        placed = event in (BOUND, RUNNING) or state is PodState.ASSUMED
        where = Place(node, workload) if placed and event in (ASSUME, BOUND, RUNNING) else None
        if where is not None:
            nodes[pod] = node
        ledger.apply(event, str(pod), 1.0, where)
    held = {pod for pod, state in states.items() if state not in (None, PodState.ENDED)}
    assert len(ledger) == len(held)
    assert {pod: ledger.state(str(pod)) for pod in states} == states
    for name in "ab":
        here = [states[pod] for pod in held if nodes[pod] == name]
        state = shown(ledger, 2.0, name)
        starting = len(here) - here.count(PodState.RUNNING)
        assert (state.assigned, state.starting, state.unprofiled) == (len(here), starting, len(here))


def test_a_workload_becomes_known_after_it_has_run_for_a_while() -> None:
    ledger, place = Ledger(profile_s=10.0), Place("a", "x")
    ledger.apply(BOUND, "1", 0.0, place)
    state = shown(ledger, 100.0)
    assert state.unprofiled == 1 and "x" not in state.known  # it never started
    ledger.apply(RUNNING, "1", 100.0, place)
    assert shown(ledger, 109.0).unprofiled == 1
    state = shown(ledger, 110.0)
    assert state.unprofiled == 0 and "x" in state.known
    ledger.apply(GONE, "1", 120.0)
    ledger.apply(BOUND, "2", 200.0, place)
    assert shown(ledger, 200.0).unprofiled == 0


def test_a_list_ends_what_it_does_not_name_but_not_what_is_only_assumed() -> None:
    ledger = Ledger()
    for uid in ("gone", "stays"):
        ledger.apply(BOUND, uid, 0.0, HERE)
    for uid in ("assumed", "accepted"):
        ledger.apply(ASSUME, uid, 0.0, Place("a", until_s=50.0))
    ledger.apply(PodEvent.ACCEPT, "accepted", 0.0)
    ledger.listed([("stays", HERE, True), ("new", HERE, False)], now_s=10.0)
    state = shown(ledger, 10.0)
    assert (state.assigned, state.starting) == (4, 3)
    assert ledger.state("gone") is PodState.ENDED
    ledger.expire(51.0)
    assert shown(ledger, 51.0).assigned == 2


def test_only_an_assumed_place_expires() -> None:
    ledger = Ledger()
    for uid in ("assumed", "accepted", "bound"):
        ledger.apply(ASSUME, uid, 0.0, Place("a", until_s=5.0))
    ledger.apply(PodEvent.ACCEPT, "accepted", 1.0)
    ledger.apply(BOUND, "bound", 1.0, HERE)
    ledger.apply(ASSUME, "bound", 2.0, Place("b", until_s=6.0))
    assert ledger.longest_s(PodState.ACCEPTED, 4.0) == 3.0
    ledger.expire(1e9)
    assert len(ledger) == 2 and ledger.place("assumed") is None
    assert shown(ledger, 1e9, "b").assigned == 0


def test_an_ended_pod_is_remembered_for_a_while() -> None:
    ledger = Ledger()
    ledger.apply(BOUND, "1", 0.0, HERE)
    ledger.apply(GONE, "1", 1.0)
    ledger.apply(ASSUME, "1", 2.0, HERE)
    assert len(ledger) == 0
    ledger.expire(REMEMBER_S)
    assert ledger.state("1") is PodState.ENDED
    ledger.expire(REMEMBER_S + 2.0)
    assert ledger.state("1") is None and not ledger._places


def test_which_nodes_changed_is_asked_once() -> None:
    ledger = Ledger()
    ledger.apply(ASSUME, "1", 0.0, HERE)
    ledger.apply(ASSUME, "1", 0.0, Place("b"))
    assert sorted(ledger.take_changed()) == ["a", "b"]
    ledger.apply(PodEvent.UNLISTED, "1", 0.0)
    assert ledger.take_changed() == []


def test_requests_add_up_and_leave_nothing_behind() -> None:
    ledger = Ledger()
    for uid in "123":
        ledger.apply(BOUND, uid, 0.0, Place("a", cpu=0.1, memory=0.2))
    ledger.apply(RUNNING, "1", 1.0, Place("a", cpu=0.1, memory=0.2))
    state = shown(ledger, 1.0)
    assert (round(state.cpu_requested, 9), round(state.memory_requested, 9)) == (0.3, 0.6)
    for uid in "123":
        ledger.apply(GONE, uid, 2.0)
    state = shown(ledger, 2.0)
    assert (state.cpu_requested, state.memory_requested) == (0.0, 0.0)


def test_memory_is_bounded_and_a_node_can_go() -> None:
    ledger = Ledger(profile_s=0.0)
    for i in range(3 * MAX_WORKLOADS):
        ledger.apply(RUNNING, str(i), float(i), Place("a", f"workload-{i}"))
        state = shown(ledger, float(i))
        ledger.apply(GONE, str(i), float(i))
    assert len(state.known) == MAX_WORKLOADS
    ledger.apply(BOUND, "p", 0.0, HERE)
    ledger.drop("a")
    assert shown(ledger, 0.0).assigned == 1 and len(ledger) == 1  # it may outlive its Node object, which may come back
    ledger.apply(GONE, "p", 1.0)
    ledger.drop("a")
    assert ledger._nodes.find("a") is None


def test_how_long_pods_start_and_run_is_learned_from_those_seen_to_do_both() -> None:
    ledger = Ledger()
    ledger.apply(ASSUME, "1", 0.0, Place("a", until_s=30.0))  # it has been starting since it was assumed
    ledger.apply(BOUND, "1", 1.0, HERE)
    ledger.apply(RUNNING, "1", 3.0, HERE)
    ledger.apply(RUNNING, "1", 4.0, HERE)
    assert isnan(shown(ledger, 4.0).starting_share)
    ledger.apply(GONE, "1", 12.0)
    assert shown(ledger, 12.0).starting_share == 3 / 12
    ledger.apply(RUNNING, "first seen running", 20.0, HERE)
    ledger.apply(GONE, "first seen running", 21.0)
    ledger.apply(BOUND, "vanishes", 20.0, HERE)
    ledger.apply(PodEvent.UNLISTED, "vanishes", 20.0)
    assert shown(ledger, 30.0).starting_share == 3 / 12
    ledger.drop("a")
    assert isnan(shown(ledger, 30.0).starting_share)


def test_a_pod_that_never_starts_does_not_keep_others_from_starting() -> None:
    ledger = Ledger()
    ledger.apply(BOUND, "stuck", 0.0, HERE)
    state = shown(ledger, LONGEST_START_S)
    assert (state.assigned, state.starting) == (1, 1)
    state = shown(ledger, LONGEST_START_S + 1)
    assert (state.assigned, state.starting) == (1, 0)
    ledger.apply(RUNNING, "stuck", 900.0, HERE)
    ledger.apply(GONE, "stuck", 905.0)
    state = shown(ledger, 905.0)
    assert state.assigned == 0 and isnan(state.starting_share)
