"""pod-capacity: pure, closed when stale, whole scores."""

from collections.abc import Sequence
from math import inf, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.schedule.policy import POLICIES, TOP_SCORE, NodeState, PendingPod, PodCapacity, Policy
from carico_agent.schedule.table import Table

POD = PendingPod("uid", "job-a")


def node(slots: float = 8.0, **more: object) -> NodeState:
    return NodeState("n", slots, published_s=100.0, ttl_s=150.0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("view", "now_s", "word"),
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
        (node(assigned=6, starting=4, starting_share=0.4), 100, "starting"),  # 1.25 × 0.4 of 8 slots
        (node(assigned=6, starting=3, starting_share=0.4), 100, None),
        (node(assigned=6, starting=1, starting_share=0.01), 100, "starting"),
        (node(assigned=6, starting=0, starting_share=0.01), 100, None),  # one may always start
        (node(assigned=7, starting=7, starting_share=0.9), 100, None),
        (node(1.0), 100, None),  # a small node may always start one
        (node(40.0, prior_slots=8.0), 100, None),
        (node(40.0, prior_slots=8.0, assigned=7, unprofiled=7), 100, None),
        (node(40.0, prior_slots=8.0, assigned=8, unprofiled=8), 100, "no room"),
        (node(40.0, prior_slots=8.0, assigned=38), 100, "unprofiled"),
        (node(40.0, prior_slots=8.0, assigned=38, known={"job-a"}), 100, None),
        (node(4.0, prior_slots=8.0, assigned=3, unprofiled=3), 100, None),  # heavier than the prior: nothing to add
    ],
)
def test_refusal(view: NodeState, now_s: float, word: str | None) -> None:
    said = PodCapacity().refusal(view, POD, now_s)
    assert said is None if word is None else said is not None and word in said
    table = Table()
    table.put(view)
    assert PodCapacity().refusals(table.of([view.name]), POD, now_s) == [said]


def test_a_ratio_of_one_is_no_limit_ever() -> None:
    assert PodCapacity(starting_ratio=1.0).refusal(node(assigned=7, starting=7, starting_share=0.1), POD, 100) is None


def test_stale_nodes_can_be_kept_open() -> None:
    assert PodCapacity(open_when_stale=True).refusal(node(), POD, 1e6) is None


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 200)), max_size=20))
def test_scores_are_whole_and_in_the_order_of_room(pairs: list[tuple[float, int]]) -> None:
    views = [node(slots, assigned=assigned) for slots, assigned in pairs]
    scores = PodCapacity().scores(views, POD, 100.0)
    assert all(type(score) is int and 0 <= score <= TOP_SCORE for score in scores)
    ranked = sorted(zip((v.available() for v in views), scores, strict=True))
    assert [score for _, score in ranked] == sorted(scores)


def test_scores_of_no_nodes_and_of_full_ones() -> None:
    assert PodCapacity().scores([], POD, 0) == []
    assert PodCapacity().scores([node(2, assigned=3), node(nan)], POD, 0) == [0, 0]


def of(numbers: tuple[float, float, int, int, int, float, bool, float]) -> NodeState:
    slots, published_s, assigned, starting, unprofiled, prior_slots, known, share = numbers
    return NodeState(
        "x",
        slots,
        published_s,
        150.0,
        assigned,
        starting=starting,
        unprofiled=unprofiled,
        known={"job-a"} if known else (),
        starting_share=share,
        prior_slots=prior_slots,
    )


FEW = st.integers(0, 9)
SLOTS = st.sampled_from([nan, 0.0, 0.5, 4.0, 8.0, 9.0, 40.0]) | st.floats(0.0, 20.0)
ASSIGNED = FEW | st.integers(34, 40)  # nearly full: where unprofiled need more room than others
VIEWS = st.tuples(
    SLOTS,
    st.sampled_from([40.0, 0.0, -50.0, -inf, 500.0]),
    ASSIGNED,
    FEW | st.just(0),
    FEW | st.just(0),
    st.sampled_from([4.0, 8.0, inf]),
    st.booleans(),
    st.sampled_from([nan, 0.0, 0.1, 0.5]) | st.floats(0.0, 1.0),
).map(of)


def table_of(views: list[NodeState]) -> tuple[Table, list[str]]:
    table, names = Table(), [str(n) for n in range(len(views))]
    for name, view in zip(names, views, strict=True):
        view.name = name
        table.put(view)
    return table, names


@given(
    st.lists(VIEWS, max_size=30), st.booleans(), st.sampled_from([0.4, 1.0]), st.sampled_from([0.5, 1.0]), st.randoms()
)
def test_many_are_answered_as_one_by_one(
    views: list[NodeState], stale: bool, ratio: float, least: float, random: Random
) -> None:
    policy = PodCapacity(least=least, starting_ratio=ratio, open_when_stale=stale)
    table, names = table_of(views)
    random.shuffle(names)
    asked = names[: random.randint(0, len(names))]
    one_by_one = [policy.refusal(views[int(name)], POD, 100.0) for name in asked]
    assert policy.refusals(table.of(asked), POD, 100.0) == one_by_one
    assert Policy.refusals(policy, table.of(asked), POD, 100.0) == one_by_one
    assert policy.refusals([views[int(name)] for name in asked], POD, 100.0) == one_by_one


@given(st.lists(VIEWS, max_size=30))
def test_scores_of_many_are_scores_by_the_definition(views: list[NodeState]) -> None:
    room = [view.available() for view in views]
    most = max((r for r in room if r == r), default=0.0)
    expected = [max(0, int(TOP_SCORE * r / most)) if most > 0 and r == r else 0 for r in room]
    table, names = table_of(views)
    assert PodCapacity().scores(table.of(names), POD, 100.0) == expected
    assert PodCapacity().scores(views, POD, 100.0) == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 99)), max_size=200))
def test_a_table_is_a_dictionary_of_views(changes: list[tuple[int, int | None]]) -> None:
    table, views = Table(2), dict[str, NodeState]()
    for number, assigned in changes:
        name = str(number)
        if assigned is None:
            table.drop(name)
            views.pop(name, None)
        else:
            view = views.setdefault(name, NodeState(name))
            view.assigned = assigned
            table.put(view)
        found = table.of(list(views))
        assert list(found) == list(views.values()) == [found[at] for at in range(len(found))]
        assert found.assigned.tolist() == [view.assigned for view in views.values()]
        with pytest.raises(KeyError):
            table.of([*views, "none such"])


def test_another_policy_is_a_small_class() -> None:
    class Anywhere(Policy):
        name = "anywhere"

        def refusal(self, node: NodeState, pod: PendingPod, now_s: float) -> str | None:
            return None

        def scores(self, nodes: Sequence[NodeState], pod: PendingPod, now_s: float) -> list[int]:
            return [0] * len(nodes)

    assert Anywhere().refusals([node(), node()], POD, 0) == [None, None]
    assert {**POLICIES, "anywhere": Anywhere}["anywhere"]().refusal(node(), POD, 0) is None
    assert NodeState("x").prior_slots == inf
