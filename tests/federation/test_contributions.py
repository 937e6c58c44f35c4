"""Who contributed last, where: one aggregator and several, over a network that loses and repeats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico_agent.core.subspace import Subspace
from carico_agent.federation import contributions, wire
from carico_agent.federation.contribution import Contribution, Rejected
from carico_agent.federation.contributions import ContributionTable
from carico_agent.federation.moments import Moments

from .test_moments import NAMES, assert_equal, concatenated, subspace


def contribute(
    table: ContributionTable, node: str, given: Contribution, time_ns: int, now_s: float = 0.0, leaving: bool = False
):
    raw = wire.write_contribution(node, given, time_ns, leaving=leaving)
    table.apply(*wire.read_contribution(raw), raw, now_s)


def share(a: ContributionTable, b: ContributionTable, lose_answer: bool = False) -> None:
    """One Share call from a to b, as server.py does it, through real messages."""
    request = a.partial(to=b.name).SerializeToString()
    b.apply_partial(*wire.read_partial(request), now_s=0.0)
    answer = b.partial(to=a.name).SerializeToString()
    if not lose_answer:
        a.apply_partial(*wire.read_partial(answer), now_s=0.0)


def share_all(tables: list[ContributionTable], rounds: int = 4) -> None:
    for _ in range(rounds):
        for table in tables:
            table.merge()
        for i, a in enumerate(tables):
            for b in tables[i + 1 :]:
                share(a, b)
    for table in tables:
        table.merge()


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), nodes=st.integers(2, 200), steps=st.integers(1, 300))
def test_three_aggregators_converge_whatever_happened(seed, nodes, steps):
    """Nodes wander between aggregators at every message (a load balancer), shares get lost, aggregators restart."""
    rng = np.random.default_rng(seed)
    tables = [ContributionTable(f"agg{i}", Moments(), incarnation=i) for i in range(3)]
    living: dict[str, Contribution] = {}
    where: dict[str, int] = {}
    for step in range(steps):
        node, at = f"n{rng.integers(nodes)}", int(rng.integers(3))
        chance = rng.random()
        if chance < 0.7 or step == steps - 1:
            living[node], where[node] = Contribution(NAMES, subspace(rng, 4)), at
            contribute(tables[at], node, living[node], time_ns=step + 1)
        elif (
            chance < 0.78 and node in living
        ):  # leaves where it contributed last; older copies elsewhere must not come back
            share_all(tables)
            contribute(tables[where[node]], node, living.pop(node), time_ns=step + 1, leaving=True)
        elif chance < 0.95:
            a, b = rng.permutation(3)[:2]
            tables[a].merge()
            share(tables[a], tables[b], lose_answer=bool(rng.random() < 0.3))
        elif chance < 0.97:  # restart with nothing: its nodes have to contribute again
            tables[at] = ContributionTable(f"agg{at}", Moments(), incarnation=1000 + step)
            for name in [name for name, place in where.items() if place == at and name in living]:
                contribute(tables[at], name, living[name], time_ns=step + 1)
    share_all(tables)
    for table in tables:
        assert table.sums.nodes == len(living)
        assert_equal(table.sums.subspace(), *concatenated(living, table.sums.resources))
    assert sum(len(table.nodes) for table in tables) == len(living)


def test_nothing_echoes_when_nothing_changes():
    tables = [ContributionTable(f"agg{i}", Moments(), incarnation=i) for i in range(3)]
    contribute(tables[0], "n", Contribution(("cpu",), Subspace.of_batch([[0.5]])), 1)
    share_all(tables)
    before = [table.sequence for table in tables]
    share_all(tables)
    assert [table.sequence for table in tables] == before
    assert not tables[0].partial(to="agg1").owned


def test_many_owned_nodes_come_in_pieces(monkeypatch):
    monkeypatch.setattr(contributions, "OWNED_BYTES", 500)
    a, b = ContributionTable("a", Moments(), incarnation=1), ContributionTable("b", Moments(), incarnation=2)
    given = Contribution(("cpu",), Subspace.of_batch([[0.5]]))
    for i in range(100):
        contribute(a, f"n{i}", given, 1)
        contribute(b, f"n{i}", given, 2)
    share(a, b)
    assert a.partial(to="b").more_owned
    share_all([a, b], rounds=20)
    assert (len(a.nodes), len(b.nodes)) == (0, 100)
    assert not a.partial(to="b").more_owned


def test_the_silent_are_taken_out():
    a, b = ContributionTable("a", Moments(), incarnation=1), ContributionTable("b", Moments(), incarnation=2)
    given = Contribution(("cpu",), Subspace.of_batch([[0.5]]))
    contribute(a, "early", given, 1, now_s=0.0)
    contribute(a, "late", given, 1, now_s=15.0)
    contribute(b, "other", given, 1)
    share_all([a, b])
    assert a.sums.nodes == 3
    assert a.expire(now_s=21.0, silence_s=20.0, peer_silence_s=5.0) == ["early", "b"]
    a.merge()
    assert a.sums.nodes == 1


def test_leaving_is_immediate_and_old_messages_do_not_count():
    table = ContributionTable("a", Moments(), incarnation=1)
    given = Contribution(("cpu",), Subspace.of_batch([[0.5]]))
    contribute(table, "n", given, 10)
    for time_ns in (10, 9):
        with pytest.raises(Rejected, match="stale"):
            contribute(table, "n", given, time_ns)
    table.merge()
    contribute(table, "n", given, 11, leaving=True)
    table.merge()
    assert table.sums.nodes == 0 and table.sums.subspace().rank == 0


def test_a_full_aggregator_says_so():
    table = ContributionTable("a", Moments(), max_nodes=1)
    given = Contribution(("cpu",), Subspace.of_batch([[0.5]]))
    contribute(table, "n", given, 1)
    with pytest.raises(Rejected, match="full"):
        contribute(table, "m", given, 1)


def test_an_aggregator_does_not_count_itself():
    a, b = ContributionTable("same", Moments(), incarnation=1), ContributionTable("same", Moments(), incarnation=2)
    with pytest.raises(Rejected, match="self"):
        share(a, b)
