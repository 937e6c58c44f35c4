"""pod-capacity: pure, closed when stale, whole scores; against the same rule written for one node in plain Python."""

from math import ceil, inf, nan
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from carico_agent.extender.nodes import NodeColumns, NodeState, NodeTable, PendingPod
from carico_agent.extender.policies.pod_capacity import PodCapacity, PodCapacitySettings
from carico_agent.extender.policy import TOP_SCORE

POD = PendingPod("uid", "job-a")


def node(places: float = 8.0, **more: object) -> NodeState:
    return NodeState("n", places, published_s=100.0, ttl_s=150.0, **more)  # type: ignore[arg-type]


def policy(**settings: object) -> PodCapacity:
    return PodCapacity(PodCapacitySettings(**settings))  # type: ignore[arg-type]


def available(node: NodeState) -> float:
    caution = max(1.0, node.places / node.prior_places)
    return node.places - node.assigned - ((caution - 1) * node.unprofiled if node.unprofiled else 0.0)


def plain_rule(node: NodeState, pod: PendingPod, now_s: float, settings: PodCapacitySettings) -> str | None:
    """The word with which a refusal begins."""
    if node.places != node.places:
        return None if settings.open_when_unknown else "unknown"
    if now_s - node.published_s > node.ttl_s and not settings.open_when_stale:
        return "stale"
    if available(node) < settings.least:
        return "no room:"
    if (
        node.places > node.prior_places
        and pod.workload not in node.known
        and available(node) < node.places / node.prior_places
    ):
        return "no room for an unprofiled Pod"
    if settings.starting_ratio >= 1 or not node.starting:
        return None
    share = settings.starting_headroom * node.starting_share
    ratio = settings.starting_ratio if share != share else min(1.0, share)
    return "busy" if node.starting >= ceil(ratio * node.places) else None


@pytest.mark.parametrize(
    ("state", "now_s", "word"),
    [
        (node(), 100, None),
        (node(assigned=7), 100, None),
        (node(assigned=8), 100, "no room"),
        (node(7.9, assigned=7), 100, "no room"),
        (node(), 250, None),
        (node(), 251, "stale"),
        (NodeState("n"), 100, "unknown"),
        (node(nan), 100, "unknown"),
        (node(0.0), 100, "no room"),
        (node(assigned=6, starting=5), 100, "starting"),
        (node(assigned=6, starting=4), 100, None),
        (node(assigned=6, starting=4, starting_share=0.4), 100, "starting"),  # 1.25 × 0.4 of 8 places
        (node(assigned=6, starting=3, starting_share=0.4), 100, None),
        (node(assigned=6, starting=1, starting_share=0.01), 100, "starting"),
        (node(assigned=6, starting=0, starting_share=0.01), 100, None),  # one may always start
        (node(assigned=7, starting=7, starting_share=0.9), 100, None),
        (node(1.0), 100, None),  # a small node may always start one
        (node(40.0, prior_places=8.0), 100, None),
        (node(40.0, prior_places=8.0, assigned=7, unprofiled=7), 100, None),
        (node(40.0, prior_places=8.0, assigned=8, unprofiled=8), 100, "no room"),
        (node(40.0, prior_places=8.0, assigned=38), 100, "unprofiled"),
        (node(40.0, prior_places=8.0, assigned=38, known={"job-a"}), 100, None),
        (node(4.0, prior_places=8.0, assigned=3, unprofiled=3), 100, None),  # heavier than the prior: nothing to add
    ],
)
def test_refusal(state: NodeState, now_s: float, word: str | None) -> None:
    why = PodCapacity().refusal(state, POD, now_s)
    assert why is None if word is None else why is not None and word in why
    assert PodCapacity().fits(NodeColumns.of([state]), POD, now_s).tolist() == [why is None]


def test_the_words_of_a_refusal_have_its_numbers() -> None:
    states = [node(7.5, assigned=8), node(8.0, assigned=9), node(7.5, assigned=8), node(), node(assigned=6, starting=5)]
    found = PodCapacity().refusals(NodeColumns.of(states), POD, 100.0)
    full, fuller = "no room: 7.5 places, 8 Pods", "no room: 8 places, 9 Pods"
    assert found == [full, fuller, full, None, "busy: 5 Pods are starting"]
    narrow = node(40.0, prior_places=8.0, assigned=36, unprofiled=0)
    why = "no room for an unprofiled Pod: 40 places, 36 Pods, 0 of them unprofiled"
    assert PodCapacity().refusal(narrow, POD, 100.0) == why


def test_a_ratio_of_one_is_no_limit_ever() -> None:
    starting = node(assigned=7, starting=7, starting_share=0.1)
    assert policy(starting_ratio=1.0).refusal(starting, POD, 100) is None


def test_stale_and_unknown_nodes_can_be_kept_open() -> None:
    assert policy(open_when_stale=True).refusal(node(), POD, 1e6) is None
    assert policy(open_when_stale=True).refusal(NodeState("n"), POD, 1e6) is not None
    assert policy(open_when_unknown=True).refusal(NodeState("n"), POD, 1e6) is None
    assert policy(open_when_unknown=True).refusal(node(), POD, 1e6) is not None


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 200)), max_size=20))
def test_scores_are_whole_and_in_the_order_of_room(pairs: list[tuple[float, int]]) -> None:
    states = [node(places, assigned=assigned) for places, assigned in pairs]
    scores = PodCapacity().scores(NodeColumns.of(states), POD, 100.0)
    assert all(type(score) is int and 0 <= score <= TOP_SCORE for score in scores)
    ranked = sorted(zip(map(available, states), scores, strict=True))
    assert [score for _, score in ranked] == sorted(scores)


def test_scores_of_no_nodes_and_of_full_ones() -> None:
    assert PodCapacity().scores(NodeColumns.of([]), POD, 0) == []
    assert PodCapacity().scores(NodeColumns.of([node(2, assigned=3), node(nan)]), POD, 0) == [0, 0]


def of(numbers: tuple[float, float, int, int, int, float, bool, float]) -> NodeState:
    places, published_s, assigned, starting, unprofiled, prior_places, known, share = numbers
    return NodeState(
        "x",
        places,
        published_s,
        150.0,
        assigned,
        starting=starting,
        unprofiled=unprofiled,
        known={"job-a"} if known else (),
        starting_share=share,
        prior_places=prior_places,
    )


FEW = st.integers(0, 9)
SLOTS = st.sampled_from([nan, 0.0, 0.5, 4.0, 8.0, 9.0, 40.0]) | st.floats(0.0, 20.0)
ASSIGNED = FEW | st.integers(34, 40)  # nearly full: where unprofiled Pods need more room than others
STATES = st.tuples(
    SLOTS,
    st.sampled_from([40.0, 0.0, -50.0, -inf, 500.0]),
    ASSIGNED,
    FEW | st.just(0),
    FEW | st.just(0),
    st.sampled_from([4.0, 8.0, inf]),
    st.booleans(),
    st.sampled_from([nan, 0.0, 0.1, 0.5]) | st.floats(0.0, 1.0),
).map(of)
SETTINGS = st.builds(
    PodCapacitySettings,
    least=st.sampled_from([0.5, 1.0]),
    starting_ratio=st.sampled_from([0.4, 1.0]),
    starting_headroom=st.sampled_from([0.5, 1.25]),
    open_when_stale=st.booleans(),
    open_when_unknown=st.booleans(),
)


def table_of(states: list[NodeState]) -> tuple[NodeTable, list[str]]:
    table, names = NodeTable(), [str(n) for n in range(len(states))]
    for name, state in zip(names, states, strict=True):
        state.name = name
        table.put(state)
    return table, names


@given(st.lists(STATES, max_size=30), SETTINGS, st.randoms())
def test_many_are_answered_by_the_plain_rule(
    states: list[NodeState], settings: PodCapacitySettings, random: Random
) -> None:
    table, names = table_of(states)
    random.shuffle(names)
    asked = names[: random.randint(0, len(names))]
    words = [plain_rule(states[int(name)], POD, 100.0, settings) for name in asked]
    whys = PodCapacity(settings).refusals(table.of(asked), POD, 100.0)
    for why, word in zip(whys, words, strict=True):
        assert why is None if word is None else why is not None and why.startswith(word)
    assert PodCapacity(settings).fits(table.of(asked), POD, 100.0).tolist() == [word is None for word in words]
    assert [PodCapacity(settings).refusal(states[int(name)], POD, 100.0) for name in asked] == whys


@given(st.lists(STATES, max_size=30))
@example([NodeState("a", places=1e-310), NodeState("b", places=0.0, assigned=8)])
def test_scores_of_many_are_scores_by_the_definition(states: list[NodeState]) -> None:
    room = [available(state) for state in states]
    most = max((r for r in room if r == r), default=0.0)
    expected = [int(max(0.0, TOP_SCORE * r / most)) if most > 0 and r == r else 0 for r in room]
    table, names = table_of(states)
    assert PodCapacity().scores(table.of(names), POD, 100.0) == expected


def test_two_pods_of_a_workload_that_no_node_has_measured_are_enough() -> None:
    room = {"left_cpu": 6.0, "left_memory": 8e9, "cpu": 4.0, "assigned": 2}
    probed = node(**room, unprofiled=2, unprofiled_workloads={"job-a": 2})
    why = "probing: 2 Pods like this one are not measured yet"
    assert policy().refusal(probed, POD, 100) == why
    assert policy(max_unmeasured=0).refusal(probed, POD, 100) is None
    assert policy(max_unmeasured=3).refusal(probed, POD, 100) is None
    others = node(**room, unprofiled=2, unprofiled_workloads={"job-a": 1, "job-b": 1})
    assert policy().refusal(others, POD, 100) is None
    known = PendingPod("uid", "job-a", elsewhere=(1.0, nan, nan, nan))
    assert policy().refusal(probed, known, 100) is None  # another node has measured it


def test_a_node_that_measures_no_pods_is_not_held_back_by_unmeasured_ones() -> None:
    blind = node(assigned=2, unprofiled=2, unprofiled_workloads={"job-a": 2})
    assert policy().refusal(blind, POD, 100) is None


def test_few_pods_of_a_workload_start_at_once_after_it_was_a_surprise() -> None:
    state = node(40.0, assigned=10, starting=4, starting_share=0.2)
    surprised = PendingPod("uid", "job-a", surprised_for_s=60.0)
    assert policy().refusal(state, POD, 100) is None  # ten may
    assert policy().refusal(state, surprised, 100) == "busy: 4 Pods are starting"
    assert policy().refusal(node(40.0, assigned=10, starting=3, starting_share=0.2), surprised, 100) is None
    assert policy().refusal(state, PendingPod("uid", "job-a", surprised_for_s=181.0), 100) is None
    assert policy(surprised_ratio=1.0).refusal(state, surprised, 100) is None
