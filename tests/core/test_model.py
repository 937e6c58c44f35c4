"""CapacityModel: its API, its manners with bad input, and its accuracy against known truth."""

import json
from collections.abc import Callable
from math import inf, isfinite, isnan, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico_agent.core import CapacityModel, Estimate, ModelConfig, PodSample, Subspace
from lab.sim.accuracy import score
from lab.sim.synthetic import SCENARIOS, samples

FOUR_CORES = SCENARIOS[0]


def model(**config: object) -> CapacityModel:
    return CapacityModel(("cpu", "memory"), ModelConfig(cores=4, **config))  # type: ignore[arg-type]


def fed(seconds: float = 90.0, seed: int = 1, into: CapacityModel | None = None) -> CapacityModel:
    m = into or model()
    for sample in samples(FOUR_CORES, seed, seconds):
        m.observe(sample.t, sample.usage, sample.pods)
    return m


def same(a: Estimate, b: Estimate) -> bool:
    return repr(a) == repr(b)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
@pytest.mark.parametrize("prior_factor,after_s,max_rms", [(1.0, 60.0, 0.4), (4.0, 120.0, 0.5), (0.25, 120.0, 0.5)])
def test_accuracy_against_known_truth(scenario, prior_factor, after_s, max_rms) -> None:  # type: ignore[no-untyped-def]
    result = score(scenario, "resource-space", seed=2024, prior_factor=prior_factor, after_s=after_s, length_s=240)
    assert result.rms <= max_rms
    assert result.covered >= 0.9


def test_learning_is_said_until_pods_were_seen() -> None:
    m = model()
    assert m.estimate().mode == "learning"
    for tick in range(600):
        m.observe(tick * 0.1, [0.02, 0.2], pods=0)
    e = m.estimate()
    assert (e.mode, e.limiting) == ("learning", "cpu")
    assert e.low < e.pod_capacity < e.high
    assert e.pod_capacity == pytest.approx(0.98 / 0.125, rel=0.02)  # one Pod keeps one core busy


def test_nothing_is_claimed_before_the_first_sample() -> None:
    e = model().estimate()
    assert e.pod_capacity != e.pod_capacity
    assert (e.mode, e.pods, e.limiting) == ("learning", 0, None)


def test_modes_follow_the_pods() -> None:
    m = fed(60)
    t, pods = 60.0, m.estimate().pods
    for tick in range(100):
        m.observe(t + tick * 0.1, [0.01 + 0.125 * pods, 0.2 + 0.002 * pods], pods)
    assert m.estimate().mode == "measured"
    m.observe(t + 10, [0.01 + 0.125 * pods, 0.2], pods + 3)
    e = m.estimate()
    assert e.mode == "predicted"
    assert e.pod_capacity == pytest.approx(FOUR_CORES.truth(pods + 3), abs=0.4)
    assert e.slots == e.pods + e.pod_capacity


def test_a_count_between_samples_is_effective_at_once() -> None:
    m = fed(60)
    pods = m.estimate().pods
    m.count(60.0, pods + 2)
    e = m.estimate()
    assert (e.pods, e.mode) == (pods + 2, "predicted")
    assert e.pod_capacity == pytest.approx(FOUR_CORES.truth(pods + 2), abs=0.4)


def test_announced_churn_predicts_too() -> None:
    m = fed(60)
    m.observe(61, [0.9, 0.2], m.estimate().pods, churn=True)
    assert m.estimate().mode == "predicted"


def test_a_node_that_never_settles_still_learns() -> None:
    m = model()
    for tick in range(900):
        pods = 2 + (tick // 8) % 5  # changes every 0.8 s, faster than settle_s
        m.observe(tick * 0.1, [0.01 + 0.06 * pods, 0.2], pods)
    assert m.estimate().cost_vector[0] == pytest.approx(0.06, rel=0.2)


def test_a_missing_resource_is_learning_not_guessing() -> None:
    m = fed(60)
    for tick in range(20):
        m.observe(60 + tick * 0.1, [nan, 0.2], 3)
    e = m.estimate()
    assert e.mode == "learning"
    assert e.usage[0] != e.usage[0]


def test_max_pods_is_a_limit_too() -> None:
    m = fed(60, into=model(max_pods=5))
    e = m.estimate()
    assert e.slots <= 5
    assert e.limiting == "pods"


def test_memory_limit_is_respected() -> None:
    m = model(limits={"memory": 0.85})
    for tick in range(900):
        pods = (tick // 100) % 4
        m.observe(tick * 0.1, [0.01 + 0.01 * pods, 0.2 + 0.1 * pods], pods)
    e = m.estimate()
    assert e.limiting == "memory"
    assert e.slots == pytest.approx(6.5, abs=0.2)


BAD: list[tuple[str, Callable[[CapacityModel], None]]] = [
    ("2 resources", lambda m: m.observe(100, [0.5], 0)),
    ("cpu: usage 1.1", lambda m: m.observe(100, [1.1, 0.5], 0)),
    ("memory: usage -0.2", lambda m: m.observe(100, [0.5, -0.2], 0)),
    ("cpu: usage inf", lambda m: m.observe(100, [inf, 0.5], 0)),
    ("time went backwards: 1.0", lambda m: m.observe(1.0, [0.5, 0.5], 0)),
    ("time nan", lambda m: m.observe(nan, [0.5, 0.5], 0)),
    ("pods: -1", lambda m: m.observe(100, [0.5, 0.5], -1)),
    ("pods: 1.5", lambda m: m.observe(100, [0.5, 0.5], 1.5)),  # type: ignore[arg-type]
    ("weight 2", lambda m: m.merge(Subspace.of_batch([[0.1], [0.1]]), 2)),
    ("3 resources", lambda m: m.merge(Subspace.of_batch([[0.1]] * 3), 0.5)),
    ("a cost and a precision", lambda m: m.learn_cost([0.1], [1.0])),
    ("must be in", lambda m: m.learn_cost([0.1, 7.0], [1.0, 1.0])),
]


@pytest.mark.parametrize("message,call", BAD, ids=[message for message, _ in BAD])
def test_bad_input_names_the_value_and_changes_nothing(message: str, call: Callable[[CapacityModel], None]) -> None:
    m = fed(30)
    before = json.dumps(m.state())
    with pytest.raises(ValueError, match=message):
        call(m)
    assert json.dumps(m.state()) == before


def test_rounding_outside_the_range_is_accepted() -> None:
    m = model()
    m.observe(0, [1.0000001, -0.0000001], 0)
    assert m.estimate().usage == (1.0, 0.0)


@pytest.mark.parametrize(
    "config,message",
    [
        ({"estimator": "crystal-ball"}, "crystal-ball"),
        ({"limits": {"cpu": 0}}, "limits"),
        ({"cores": 0}, "cores"),
        ({"forget": 0}, "forget"),
        ({"limits": {"cpuu": 0.5}}, "cpuu"),
    ],
)
def test_bad_config_is_refused(config: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CapacityModel(("cpu", "memory"), ModelConfig(**config))  # type: ignore[arg-type]


@pytest.mark.parametrize("resources", [(), ("cpu", "cpu")])
def test_bad_resources_are_refused(resources: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="resources"):
        CapacityModel(resources)


def test_one_sample_at_a_time_whole_or_across_a_restart_is_the_same() -> None:
    whole, restarted = fed(60), model()
    for i, sample in enumerate(samples(FOUR_CORES, 1, 60.0)):
        restarted.observe(sample.t, sample.usage, sample.pods)
        if i % 37 == 0:
            restarted = CapacityModel.from_state(json.loads(json.dumps(restarted.state())))
    assert same(whole.estimate(), restarted.estimate())
    assert json.dumps(whole.state()) == json.dumps(restarted.state())


def test_a_new_clock_keeps_what_was_learned() -> None:
    m = CapacityModel.from_state(fed(90).state())
    m.restart_clock()
    for tick in range(20):
        m.observe(tick * 0.1, [0.01 + 0.125 * 2, 0.204], 2)
    e = m.estimate()
    assert e.mode == "measured"
    assert e.pod_capacity == pytest.approx(FOUR_CORES.truth(2), abs=0.5)


@pytest.mark.parametrize(
    "damage", [{}, {"version": 99}, {"version": 1}, None, {"version": 1, "resources": ["cpu"], "config": {"x": 1}}]
)
def test_damaged_state_is_a_value_error(damage: object) -> None:
    with pytest.raises(ValueError, match="state"):
        CapacityModel.from_state(damage)  # type: ignore[arg-type]


PARTS = ["ema", "subspace", "workload", "estimator", "clock", "config"]


@given(st.sampled_from(PARTS), st.none() | st.just([]) | st.just({}))
def test_state_with_a_part_broken_is_a_value_error(part: str, broken: object) -> None:
    state = {**fed(5).state(), part: broken}
    if part == "config" and broken == {}:
        return  # an empty config is all defaults
    with pytest.raises(ValueError):
        CapacityModel.from_state(state)


def test_a_gap_in_time_is_survived() -> None:
    m = fed(60)
    m.observe(3660, [0.5, 0.2], 4)
    assert isfinite(m.estimate().pod_capacity)


def test_the_clusters_unit_is_used_but_never_sent() -> None:
    """Paper, scenario 3.1: learning that the workload is heavier lowers Capacity; the own subspace stays own."""
    m = fed(60, into=model(estimator="redenominated"))
    own, before = m.subspace, m.estimate()
    m.merge(Subspace.of_batch([[0.95], [0.2]]), 0.8)
    after = m.estimate()
    assert after.capacity < before.capacity
    assert m.subspace is own
    assert after.pod_capacity == pytest.approx(before.pod_capacity)  # Pods are Pods, whatever the unit


def test_where_pods_are_measured_no_subspace_is_kept() -> None:
    m = fed(60)
    before = m.estimate()
    m.merge(Subspace.of_batch([[0.95], [0.2]]), 0.8)
    assert same(m.estimate(), before) and m.subspace.rank == m.workload.rank == 0
    assert isnan(before.capacity) and isnan(before.baseline) and isnan(before.sigma) and before.direction == ()


def test_carico_takes_all_pods_for_alike() -> None:
    """The document knows the number of Pods alone: what each of them uses changes no answer."""
    m, told = (fed(60, into=model(estimator="paper-dual")) for _ in range(2))
    pods = m.estimate().pods
    told.observe_pods(60.0, [PodSample(f"p{i}", "shop/web", (0.01, 0.3)) for i in range(pods)])
    assert same(told.estimate(), m.estimate()) and same(told.estimate("shop/web"), m.estimate())
    assert isfinite(m.estimate().capacity) and not m.estimate().measured


def test_a_state_with_a_subspace_is_read_by_a_model_that_keeps_none() -> None:
    state = fed(60, into=model(estimator="paper-dual")).state()
    other = fed(60).state()
    read = CapacityModel.from_state({**other, "subspace": state["subspace"], "workload": state["workload"]})
    assert read.subspace.rank == 0 and same(read.estimate(), fed(60).estimate())


def test_complementary_workload_raises_capacity() -> None:
    """Paper, scenario 3.2: a memory-heavy node has more room for a cpu workload."""
    m = model(estimator="paper-dual")
    for tick in range(200):
        m.observe(tick * 0.1, [0.05, 0.6], 0)
    before = m.estimate().capacity
    m.merge(Subspace.of_batch([[0.7], [0.05]]), 0.95)
    assert m.estimate().capacity > before


ticks = st.tuples(
    st.floats(0, 2), st.floats(0, 1) | st.just(nan), st.floats(0, 1) | st.just(nan), st.integers(0, 30), st.booleans()
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["resource-space", "paper-dual"]), st.lists(ticks, max_size=60))
def test_any_telemetry_gives_an_answer_that_holds_together(
    estimator: str,
    sequence: list[tuple[float, float, float, int, bool]],
) -> None:
    m, t = model(estimator=estimator), 0.0
    for elapsed_s, cpu, memory, pods, churn in sequence:
        t += elapsed_s
        m.observe(t, [cpu, memory], pods, churn)
        e = m.estimate()
        assert e.mode in {"learning", "measured", "predicted"}
        if e.pod_capacity == e.pod_capacity:
            assert 0 <= e.low <= e.pod_capacity <= e.high
            assert e.slots == e.pods + e.pod_capacity
        if estimator == "paper-dual":
            assert len(e.direction) == 2 and all(u >= 0 for u in e.direction)
            assert e.sigma >= 0
    json.dumps(m.state(), allow_nan=False)


def test_a_saturated_node_is_full_even_while_it_never_settles() -> None:
    """Light Pods taught a low cost; heavy ones come two a second, so usage is never settled and only predicted."""
    m = CapacityModel(config=ModelConfig(cores=4))
    for tick in range(835):
        light, heavy = min(10, tick // 30), max(0, (tick - 800) // 5)
        m.observe(tick * 0.1, [min(1.0, 0.01 + 0.025 * light + 0.25 * heavy), 0.2], pods=light + heavy)
    assert m.estimate().mode != "measured"
    assert m.estimate().pod_capacity < 1


def test_a_saturated_reading_just_after_pods_left_is_their_echo() -> None:
    m = CapacityModel(config=ModelConfig(cores=4))
    for tick in range(600):
        m.observe(tick * 0.1, [0.01 + 0.125 * (tick // 60 % 8), 0.2], pods=tick // 60 % 8)
    for tick in range(600, 640):
        m.observe(tick * 0.1, [1.0, 0.2], pods=8)
    m.observe(64.0, [1.0, 0.2], pods=5)
    assert 2 < m.estimate().pod_capacity < 4
