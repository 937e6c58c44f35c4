"""The node-wide filter never runs away, never closes a node for ever, and never learns that Pods are free."""

from math import nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.core.estimators import Situation
from carico_agent.core.estimators.resource_space import Channel, ResourceSpace

UNIT = (0.4, 0.2)
batches = st.tuples(st.floats(0, 1) | st.just(nan), st.floats(0, 1) | st.just(nan), st.integers(0, 110))
stretches = st.lists(st.tuples(batches, st.integers(1, 120)), max_size=12)


def learn(history: list[tuple[tuple[float, float, int], int]], cores: int) -> ResourceSpace:
    estimator = ResourceSpace(ModelConfig(cores=cores), ("cpu", "memory"))
    for (cpu, memory, pods), seconds in history:
        for _ in range(seconds):
            estimator.learn(Situation((cpu, memory), UNIT, pods), 1.0)
            for channel in estimator.channels:
                assert -1 <= channel.base <= 1
                assert channel.cost >= 0
    return estimator


@given(stretches, st.sampled_from([1, 2, 8, 64]))
@settings(max_examples=200, deadline=None)
def test_no_believed_base_is_ever_outside_minus_one_and_one(history, cores) -> None:  # type: ignore[no-untyped-def]
    learn(history, cores)


def test_idle_pods_and_then_busy_ones_ask_for_a_base_below_zero() -> None:
    estimator = learn([((0.02, 0.2, 8), 60), ((0.27, 0.2, 10), 30), ((0.145, 0.2, 9), 30), ((0.395, 0.2, 11), 30)], 4)
    assert estimator.channels[0].cost == pytest.approx(0.125, rel=0.2)
    assert estimator.channels[0].base < 0
    judgement = estimator.judge(Situation((0.395, 0.2), UNIT, 11))
    assert judgement.measured.value == pytest.approx(0.605 / 0.125, rel=0.25)


def test_a_cost_above_the_prior_decays_while_no_pod_runs() -> None:
    estimator = learn([((0.9, 0.2, 1), 60)], 4)
    before = estimator.channels[0].cost
    for _ in range(3600):
        estimator.learn(Situation((0.02, 0.2), UNIT, 0), 1.0)
    assert before > 0.5
    assert 0.125 <= estimator.channels[0].cost < 0.8 * before


@pytest.mark.long
def test_an_empty_idle_node_offers_a_place_after_any_of_1000_histories() -> None:
    """Ten minutes after the last Pod left, whatever had happened before."""
    rng = np.random.default_rng(14)
    for _ in range(1000):
        m, t = CapacityModel(config=ModelConfig(cores=int(rng.choice([1, 2, 4, 32])), max_pods=110)), 0.0
        for _ in range(int(rng.integers(1, 6))):
            usage, pods = rng.uniform(0, 1, 2), int(rng.choice([0, 0, 1, 2, 8, 100]))
            for _ in range(int(rng.integers(2, 15))):
                m.observe(t, usage, pods)
                t += 1.0
        for _ in range(4):
            m.observe(t, [0.02, 0.2], 0)
            t += 1.0
        m.observe(t + 590, [0.02, 0.2], 0)
        assert m.estimate().pod_capacity >= 1


def test_sleepers_do_not_teach_that_a_pod_is_free() -> None:
    m = CapacityModel(config=ModelConfig(cores=2, max_pods=110))
    for tick in range(3000):
        m.observe(tick / 10, [0.01, 0.1], pods=5 if 600 < tick < 2400 else 0)
    e = m.estimate()
    assert e.mode == "learning"
    assert e.pod_capacity == pytest.approx(0.99 / 0.25, rel=0.02)
    assert e.low < 2 and e.high == 110


def test_one_heavy_pod_and_a_job_of_the_host_do_not_close_the_node() -> None:
    m, t = CapacityModel(config=ModelConfig(cores=4, max_pods=110)), 0.0
    for seconds, cpu, pods in ((60, 0.02, 0), (120, 1.0, 1), (30, 0.02, 0), (20, 0.9, 0), (60, 0.02, 0)):
        for _ in range(seconds * 10):
            m.observe(t, [cpu, 0.2], pods)
            t += 0.1
    assert m.estimate().pod_capacity >= 1


@pytest.mark.parametrize(("variance", "wanted"), [(1.0, 0.05), (1e-12, 0.4)])
def test_the_cluster_counts_by_how_sure_it_is(variance: float, wanted: float) -> None:
    """Own evidence says 0.05 a Pod, the cluster 0.4."""
    channel = Channel(ModelConfig(cores=4), 0.125)
    for second in range(60):
        pods = (0, 3, 6, 2)[second % 4]
        channel.learn(0.02 + 0.05 * pods, pods, 1.0, 1.0)
    channel.cluster = (0.4, variance)
    assert channel.cost_belief()[0] == pytest.approx(wanted, rel=0.05)


def test_heavier_pods_are_believed_at_once_lighter_ones_slowly() -> None:
    """A Pod that turned twice as heavy, and one that turned half as heavy, five seconds after."""
    moved = {}
    for factor in (2.0, 0.5):
        channel = Channel(ModelConfig(cores=4), 0.125)
        for second in range(300):
            channel.learn(0.02 + 0.1 * (second % 4), second % 4, 1.0, 1.0)
        before = channel.cost
        for _ in range(5):
            channel.learn(0.02 + 0.1 * factor * 3, 3, 1.0, 1.0)
        moved[factor] = (channel.cost - before) / (0.1 * factor - before)
    assert moved[2.0] > 0.8
    assert moved[0.5] < 0.5 * moved[2.0]


@pytest.mark.parametrize(("small", "trusted"), [(0.1, True), (0.02, False)])
def test_a_cost_is_not_trusted_where_usage_is_no_line_over_pods(small: float, trusted: bool) -> None:
    """Pods of 0.1 of the node come and go, and among them others, which are the same or much smaller."""
    rng = np.random.default_rng(5)
    large, other, history = 1, 1, []
    for _ in range(60):
        large, other = (int(np.clip(n + rng.integers(-1, 2), 0, 4)) for n in (large, other))
        history.append(((0.03 + 0.1 * large + small * other, 0.2, large + other), 15))
    estimator = learn(history, 4)
    seen = Situation((0.4, 0.2), UNIT, 4)
    assert estimator.judge(seen).trusted is trusted
    again = ResourceSpace(ModelConfig(cores=4), ("cpu", "memory"))
    again.restore(estimator.state())
    assert again.judge(seen) == estimator.judge(seen)
    older = {"channels": [channel[:5] for channel in estimator.state()["channels"]]}
    again.restore(older)
    assert again.judge(seen).trusted
