"""CapacityModel when every Pod is measured: the contract, workload by workload."""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico_agent.core import CapacityModel, ModelConfig, PodSample, WorkloadCost
from carico_agent.core.answer import learning
from carico_agent.core.estimators import Span

WEB, CACHE = (0.1, 0.01), (0.01, 0.06)


def pods(workload: str, count: int, usage: tuple[float, ...], per_node: bool = False) -> list[PodSample]:
    return [PodSample(f"{workload}-{i}", workload, usage, per_node) for i in range(count)]


def run(
    m: CapacityModel, start_s: float, samples: Sequence[PodSample], host: float = 0.02, length_s: float = 60.0
) -> float:
    """Feed a steady node: usage at 10 Hz, Pods every 5 s; returns the time after it."""
    usage = [min(1.0, base + sum(p.usage[i] for p in samples)) for i, base in enumerate((host, 0.1))]
    for tick in range(int(length_s * 10)):
        t = start_s + tick / 10
        m.observe(t, usage, pods=len(samples))
        if tick % 50 == 0:
            m.observe_pods(t, samples)
    return start_s + length_s


def model(cores: int = 4, **config: object) -> CapacityModel:
    return CapacityModel(("cpu", "memory"), ModelConfig(cores=cores, **config))  # type: ignore[arg-type]


def test_each_workload_has_its_own_number() -> None:
    m = model()
    samples = pods("shop/web", 3, WEB) + pods("shop/cache", 2, CACHE)
    t = run(m, 0.0, pods("system", 2, (0.001, 0.004), per_node=True))
    run(m, t, samples + pods("system", 2, (0.001, 0.004), per_node=True))
    web, cache = m.estimate(workload="shop/web"), m.estimate(workload="shop/cache")
    room = (1 - 0.02 - 0.322, 1 - 0.1 - 0.158)
    assert (web.mode, web.limiting) == ("measured", "cpu")
    assert web.pod_capacity == pytest.approx(room[0] / 0.1, rel=0.05)
    assert (cache.limiting, cache.pod_capacity) == ("memory", pytest.approx(room[1] / 0.06, rel=0.05))
    e = m.estimate()
    assert e.measured
    assert e.room == pytest.approx(room, abs=0.01)
    assert e.host == pytest.approx((0.02, 0.1), abs=0.01)
    # three of five that arrived are web: the next Pod is the mixture
    assert e.pod_capacity == pytest.approx(room[0] / (0.6 * 0.1 + 0.4 * 0.01), rel=0.05)
    assert e.low <= web.pod_capacity <= e.high
    assert {k.workload: k.pods for k in e.workloads} == {"shop/web": 3, "shop/cache": 2, "system": 2}
    assert next(k for k in e.workloads if k.workload == "system").arrivals == 0
    assert m.estimate(workloads=False) == replace(e, workloads=())


def test_an_unknown_workload_is_the_prior_and_learning() -> None:
    m = model()
    run(m, 0.0, pods("shop/web", 3, WEB))
    e = m.estimate(workload="nobody/knows")
    assert e.mode == "learning"
    assert e.pod_capacity == pytest.approx(0.68 / 0.125, rel=0.02)
    assert e.low < e.pod_capacity / 2
    assert model().estimate(workload="x").mode == "learning"


def test_pods_present_at_the_start_count_as_arrivals_only_until_one_arrives() -> None:
    m = model()
    t = run(m, 0.0, pods("old", 5, (0.02, 0.01)))
    assert m.estimate().cost_vector[0] == pytest.approx(0.02, rel=0.1)
    run(m, t, pods("old", 5, (0.02, 0.01)) + pods("new", 1, (0.2, 0.01)))
    assert m.estimate().cost_vector[0] == pytest.approx(0.2, rel=0.1)


def test_an_empty_node_that_only_saw_sleepers_is_learning_with_the_priors_interval() -> None:
    m = model(cores=2, max_pods=110)
    t = run(m, 0.0, [])
    t = run(m, t, pods("sleep", 4, (0.0, 0.0002)), length_s=300)
    run(m, t, [])
    e = m.estimate()
    assert e.mode == "learning"
    assert e.pod_capacity == pytest.approx(0.98 / 0.25, rel=0.02)
    assert e.low < 2 and e.high == pytest.approx(16 * e.pod_capacity, rel=0.01)  # a sixteenth of a core each
    again = CapacityModel.from_state(json.loads(json.dumps(m.state())))
    assert again.estimate().pod_capacity == e.pod_capacity


def test_a_workload_of_sleepers_is_learning_until_they_have_slept_for_long() -> None:
    m = model(cores=2)
    samples = pods("pi", 1, (0.25, 0.01)) + pods("waits", 3, (0.0, 0.0002))
    t = run(m, run(m, 0.0, []), samples, length_s=500)
    waits = m.estimate(workload="waits")
    assert (waits.mode, waits.pod_capacity) == ("learning", pytest.approx(0.73 / 0.25, rel=0.02))
    assert [workload.trusted for workload in m.estimate().workloads] == [True, False]
    assert m.estimate().mode == "learning"  # three of four that arrive are of this workload
    again = CapacityModel.from_state(json.loads(json.dumps(m.state())))
    for one in (m, again):
        run(one, t, samples, length_s=120)
        waits = one.estimate(workload="waits")
        assert (waits.mode, waits.limiting) == ("measured", "memory")
        assert waits.pod_capacity > 1000
        assert one.estimate().mode == "measured"


def test_idle_system_pods_and_then_busy_ones() -> None:
    m = model()
    system = pods("kube-system/agent", 6, (0.001, 0.004), per_node=True) + pods("kube-system/dns", 2, (0.002, 0.005))
    t = run(m, 0.0, system)
    run(m, t, system + pods("pi", 3, (0.125, 0.005)))
    e = m.estimate()
    assert e.mode == "measured"
    assert e.pod_capacity == pytest.approx((1 - 0.02 - 0.01 - 0.375) / 0.125, rel=0.05)


def test_a_throttled_pod_beside_busy_loops_is_not_contention() -> None:
    """Measured on two cores: the node's cpu channel reads .763 where .55 is the truth."""
    m = model(cores=2)
    t = run(m, 0.0, [])
    samples = pods("loop", 2, (0.25, 0.01)) + pods("quota", 1, (0.05, 0.01))
    for tick in range(600):
        m.observe(t + tick / 10, [0.763, 0.13], pods=3)
        if tick % 50 == 0:
            m.observe_pods(t + tick / 10, samples, host=(0.0, 0.1))
    assert m.estimate().room[0] == pytest.approx(0.45, abs=0.06)


def test_a_node_that_starts_throttled_believes_the_pods_counters() -> None:
    m = model(cores=2)
    samples = pods("loop", 2, (0.25, 0.01)) + pods("quota", 1, (0.05, 0.01))
    for tick in range(600):
        m.observe(tick / 10, [0.763, 0.13], pods=3)
        if tick % 50 == 0:
            m.observe_pods(tick / 10, samples)
    assert m.estimate().room[0] == pytest.approx(0.45, abs=0.06)


def test_a_young_pod_of_a_workload_that_ramps_counts_at_its_cost() -> None:
    m = model(cores=8)
    t = run(m, 0.0, [])
    for i in range(6):  # the workload shows that it needs 30 s
        for tick in range(600):
            share = min(1.0, tick / 300)
            cpu = 0.1 * share
            m.observe(t, [0.02 + cpu, 0.1], pods=1)
            if tick % 50 == 0:
                m.observe_pods(t, [PodSample(f"slow-{i}", "slow", (cpu, 0.001))])
            t += 0.1
        t = run(m, t, [], length_s=10)
    for tick in range(80):
        m.observe(t, [0.02, 0.1], pods=1)
        if tick % 50 == 0:
            m.observe_pods(t, [PodSample("slow-new", "slow", (0.0, 0.001))])
        t += 0.1
    e = m.estimate()
    assert e.mode == "predicted"
    assert e.room[0] == pytest.approx(0.88, abs=0.04)


def test_pods_that_sleep_before_they_work_do_not_make_their_workload_cheap() -> None:
    """What wakes has not grown: three that woke are no leak, and those that sleep on do not count as half of one."""
    m, awake_t = model(cores=8), {0: 60.0, 1: 64.0, 2: 90.0}
    for tick in range(3000):
        t, samples = tick / 10, []
        for i in range(7):
            since_s = t - awake_t.get(i, 1e9)
            cpu = 0.0625 * (0.0 if since_s < 0 else 0.7 if since_s < 5 else 1.0)
            samples.append(PodSample(f"pi-{i}", "pi", (cpu, 0.005)))
        m.observe(t, [0.02 + sum(sample.usage[0] for sample in samples), 0.1], pods=7)
        if tick % 50 == 0:
            m.observe_pods(t, samples if tick else [])
        if t > 75 and tick % 50 == 0:
            assert m.estimate().cost_vector[0] == pytest.approx(0.0625, rel=0.1), t


def test_a_pod_counted_before_it_is_measured_is_counted_once() -> None:
    m = model()
    samples = pods("web", 3, WEB)
    t = run(m, 0.0, [])
    t = run(m, t, samples)
    before = m.estimate()
    m.count(t, 4)
    assert m.estimate().slots == pytest.approx(before.slots, abs=0.3)
    m.observe(t, [0.32, 0.13], pods=4)
    m.observe_pods(t, [*samples, PodSample("web-9", "web", (nan, nan))])
    assert m.estimate().slots == pytest.approx(before.slots, abs=0.3)


def test_a_start_that_comes_with_the_first_sample_of_a_newcomer_is_not_taken_for_usage_before_it() -> None:
    m = model(cores=16)
    samples = pods("web", 3, (0.01, 0.01))
    t = run(m, run(m, 0.0, []), samples)
    before = m.estimate().room[0]
    for _ in range(2):  # 0.2 s of a container's start
        m.observe(t, [0.45, 0.13], pods=4)
        t += 0.1
    m.observe(t, [0.06, 0.14], pods=4)
    e = m.estimate()
    assert e.mode == "predicted"
    assert e.room[0] == pytest.approx(before - 0.01, abs=0.003)


def test_a_newcomer_is_not_missed_while_others_leave() -> None:
    m = model()
    samples = pods("web", 6, WEB)
    t = run(m, run(m, 0.0, []), samples)
    for tick in range(10):  # three leave, and their usage with them
        m.observe(t + tick / 10, [0.32, 0.13], pods=3)
    m.observe(t + 1.0, [0.32, 0.13], pods=4)  # one has come and does not show yet
    assert m.estimate().room[0] == pytest.approx(1 - 0.02 - 4 * 0.1, abs=0.02)


def test_where_quotas_stop_pods_room_is_what_their_own_readings_leave() -> None:
    m = model(cores=2)
    loops, t = pods("loop", 3, (0.2, 0.01)), 0.0
    for tick in range(600):
        m.observe(t, [0.9, 0.13], pods=3)  # the Pods' sum is .6: the rest is waiting for a quota
        if tick % 10 == 0:
            m.observe_pods(t, loops, host=(0.02, nan))
        t += 0.1
    assert m.estimate().room[0] == pytest.approx(1 - 0.62, abs=0.02)
    for _ in range(30):
        m.observe(t, [0.85, 0.12], pods=2)  # one left, and the reading hardly moves
        t += 0.1
    assert m.estimate().room[0] == pytest.approx(1 - 0.42, abs=0.03)


def test_a_node_that_reads_as_busy_after_pods_have_left_is_throttled() -> None:
    """Nobody says what the host uses. A loop leaves and the reading stays: that tells quotas from a busy host."""
    m = model(cores=2)
    quota, t = pods("quota", 1, (0.05, 0.01)), run(m, 0.0, [])
    for count in (3, 2, 3, 2, 3):
        samples = quota + pods("loop", count, (0.22, 0.01))
        for tick in range(300):
            m.observe(t, [0.87 if count == 3 else 0.89, 0.13], pods=len(samples))
            if tick % 50 == 0:
                m.observe_pods(t, samples)
            t += 0.1
    assert m.estimate().room[0] == pytest.approx(1 - 0.05 - 3 * 0.22, abs=0.06)


def test_a_node_that_is_overfull_offers_no_place_when_a_pod_leaves() -> None:
    m = model()
    samples = pods("pi", 12, (0.125, 0.01))  # 1.5 times what there is
    t = run(m, run(m, 0.0, []), samples)
    m.observe(t, [1.0, 0.22], pods=11)
    m.observe(t + 0.1, [1.0, 0.22], pods=11)
    assert m.estimate().pod_capacity == 0


@pytest.mark.parametrize("usage", [(0.0045, 0.002), (0.0, 0.019)])
def test_pods_that_idle_along_are_learning_too(usage: tuple[float, float]) -> None:
    m = model()
    run(m, run(m, 0.0, []), pods("idle", 5, usage), length_s=300)
    assert m.estimate().mode == "learning"
    assert m.estimate().pod_capacity <= 8


def test_a_heavy_pod_does_not_close_an_empty_node_for_ever() -> None:
    m = model()
    t = run(m, 0.0, pods("huge", 1, (0.97, 0.01)), length_s=120)
    run(m, t, [])
    assert m.estimate().pod_capacity >= 1


def test_the_same_objects_again_are_still_evidence() -> None:
    m = model()
    t = run(m, 0.0, [])
    run(m, t, pods("web", 2, WEB), length_s=30)
    assert m.estimate(workload="web").mode == "measured"


def test_pods_that_sleep_on_cost_the_model_nothing_and_change_no_answer() -> None:
    """As the agent does it: a Pod that did not run since it was read is the same object again, every second."""
    once, anew = model(), model()
    samples = pods("shop/web", 5, WEB) + pods("shop/cache", 3, CACHE)
    renewed = []
    for second in range(300):
        for m in (once, anew):
            m.observe(second, [0.6, 0.3], pods=len(samples))
        once.observe_pods(second + 0.5, samples)
        following = once._next
        once.estimate()
        renewed.append(once._next is not following)
        anew.observe_pods(second + 0.5, [replace(one) for one in samples] if second % 6 == 0 else samples)
        samples = list(samples)
    assert not any(renewed[120:150])
    for workload in (None, "shop/web", "shop/cache"):
        ours, theirs = once.estimate(workload), anew.estimate(workload)
        assert ours.pod_capacity == pytest.approx(theirs.pod_capacity, rel=1e-3)
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=0.01)


def test_a_reading_counts_once_until_the_next_one_comes() -> None:
    """Pods are read every 5 s and told every second: what was read once is no second reading just before the next."""
    m = model()
    for second in range(12):
        if second % 5 == 0:
            samples = pods("shop/web", 1, (0.1 if second < 10 else 0.11, 0.01))
        m.observe(second, [0.2, 0.2], pods=1)
        m.observe_pods(second + 0.5, samples)
    [pod] = m._measured.pods.values()
    assert pod.readings == [3.0, 3.0] and pod.mean[0] == pytest.approx(0.31 / 3)


def test_what_the_cluster_knows_answers_for_a_workload_that_never_ran_here() -> None:
    m = model()
    run(m, 0.0, [])
    m.learn_workloads([WorkloadCost("shop/db", (0.3, 0.2), (0.03, 0.02), 20, 5.0)])
    e = m.estimate(workload="shop/db")
    assert e.mode != "learning"
    assert e.pod_capacity == pytest.approx(0.98 / 0.3, rel=0.05)
    assert m.estimate().cost_vector[0] == pytest.approx(0.3)
    m.learn_workloads([])
    assert m.estimate(workload="shop/db").mode == "learning"


def test_a_light_workload_that_the_cluster_knows_is_believed_and_a_heavy_one_does_not_fit() -> None:
    m = model()
    run(m, 0.0, [])
    light, heavy = (0.001, 0.002), (4.0, 0.5)  # of a node sixteen times as large
    m.learn_workloads([WorkloadCost("light", light, light, 500, 300.0), WorkloadCost("heavy", heavy, heavy, 3, 1.0)])
    assert m.estimate(workload="light").mode != "learning"
    assert m.estimate(workload="light").pod_capacity > 100
    assert 0 < m.estimate(workload="heavy").pod_capacity <= 1


def test_sleepers_of_a_few_minutes_are_not_told_to_others() -> None:
    m = model()
    t = run(m, 0.0, [])
    t = run(m, t, pods("pi", 1, (0.125, 0.01)) + pods("waits", 3, (0.0, 0.0002)))
    assert [workload.workload for workload in m.local_workloads()] == ["pi"]


def test_growth_does_not_cross_a_new_clock() -> None:
    m = model()
    t = run(m, 100_000.0, [])
    for k in range(200):  # caches fill, and are full; one of four leaves
        web = pods("web", 4 if k < 180 else 3, (0.02, 0.05 + 0.1 * min(1, k / 100)))
        run(m, t + 5 * k, web, length_s=5)
    again = CapacityModel.from_state(json.loads(json.dumps(m.state())))
    again.restart_clock()
    full = pods("web", 3, (0.02, 0.15))
    before = run(again, t - 60, full, length_s=130)
    run(again, before, [*full, PodSample("web-9", "web", (0.02, 0.05))], length_s=60)
    assert 0.1 < next(workload.cost[1] for workload in again.estimate().workloads if workload.workload == "web") < 0.2


def test_local_workloads_are_bounded_and_own() -> None:
    m = model(cores=64)
    m.learn_workloads([WorkloadCost("k-0", (0.9, 0.9), (0.1, 0.1), 20, 5.0)])
    samples = [PodSample(f"u{i}", f"k-{i}", (0.004, 0.004)) for i in range(100)]
    run(m, 0.0, samples)
    local = m.local_workloads()
    assert len(local) == 32
    assert all(k.cost[0] == pytest.approx(0.004) for k in local)
    assert len(m.estimate().workloads) == 64
    assert any(k.workload == "other" for k in m.estimate().workloads)


def test_a_pod_counted_as_other_is_no_newcomer_when_its_workload_gets_a_place() -> None:
    m = model(cores=64)
    t = run(m, 0.0, [])
    samples = [PodSample(f"u{i}", f"k-{i}", (0.004, 0.004)) for i in range(65)]
    t = run(m, t, samples)
    before = next(workload.arrivals for workload in m.estimate().workloads if workload.workload == "other")
    again = CapacityModel.from_state(json.loads(json.dumps(m.state())))
    for one in (m, again):
        run(one, t, samples, length_s=20)
        workloads = {workload.workload: workload for workload in one.estimate().workloads}
        assert workloads["other"].pods == 2
        assert workloads["other"].arrivals == pytest.approx(before, rel=0.01)


def test_a_resource_that_is_not_measured_per_pod_stays_with_the_filter() -> None:
    m = CapacityModel(("cpu", "network"), ModelConfig(cores=4))
    t = 0.0
    for count in (0, 3, 1, 4, 2, 3) * 3:
        for tick in range(150):
            m.observe(t, [0.02 + 0.02 * count, 0.01 + 0.1 * count], pods=count)
            if tick % 50 == 0:
                m.observe_pods(t, pods("net", count, (0.02, nan)))
            t += 0.1
    e = m.estimate(workload="net")
    assert e.limiting == "network"
    assert e.pod_capacity == pytest.approx(6.9, rel=0.1)


def test_pods_no_longer_measured_fall_back_to_the_filter() -> None:
    m = model()
    t = run(m, 0.0, pods("web", 3, WEB))
    for tick in range(400):
        m.observe(t + tick / 10, [0.32, 0.13], pods=3)
    assert not m.estimate().measured


BAD = [
    ("time went backwards", lambda m: m.observe_pods(1.0, [])),
    ("not finite", lambda m: m.observe_pods(nan, [])),
    ("twice", lambda m: m.observe_pods(100, pods("a", 1, WEB) * 2)),
    ("2 resources", lambda m: m.observe_pods(100, pods("a", 1, (0.1,)))),
    ("host", lambda m: m.observe_pods(100, [], host=(0.1,))),
    ("workload 'a'", lambda m: m.learn_workloads([WorkloadCost("a", (-7.0, 0.0), (0.0, 0.0), 1, 1.0)])),
]


@pytest.mark.parametrize("message,call", BAD, ids=[message for message, _ in BAD])
def test_bad_input_changes_nothing(message: str, call) -> None:  # type: ignore[no-untyped-def]
    m = model()
    run(m, 0.0, pods("web", 2, WEB))
    before = json.dumps(m.state())
    with pytest.raises(ValueError, match=message):
        call(m)
    assert json.dumps(m.state()) == before


def test_a_restart_continues_alike() -> None:
    whole, restarted = model(), model()
    t = 0.0
    for count in (0, 2, 5, 3, 1):
        for _ in range(4):
            for one in (whole, restarted):
                run(one, t, pods("web", count, WEB) + pods("cache", 2, CACHE), length_s=7)
            t += 7
            restarted = CapacityModel.from_state(json.loads(json.dumps(restarted.state())))
            assert repr(restarted.estimate()) == repr(whole.estimate())
    assert json.dumps(restarted.state()) == json.dumps(whole.state())


def version_1(m: CapacityModel) -> dict[str, object]:
    state = json.loads(json.dumps(m.state()))
    for key in ("pods", "prior", "noise"):
        del state[key]
    for key in ("calm", "calm_pods", "jump"):
        del state["clock"][key]
    return state | {"version": 1}


def test_a_state_of_version_1_becomes_the_prior_of_the_next_pod() -> None:
    m = model()
    for tick in range(1200):
        count = tick // 100 % 4
        m.observe(tick / 10, [0.02 + 0.05 * count, 0.1], pods=count)
    again = CapacityModel.from_state(version_1(m))
    assert again.estimate().pod_capacity == pytest.approx(m.estimate().pod_capacity)
    assert again.estimate(workload="new").cost_vector[0] == pytest.approx(0.05, rel=0.05)


def test_sleepers_of_version_1_have_taught_nothing() -> None:
    m = model()
    for tick in range(1200):
        m.observe(tick / 10, [0.02, 0.1], pods=4 * (tick // 200 % 2))
    again = CapacityModel.from_state(version_1(m))
    assert again.estimate(workload="new").cost_vector[0] == 0.125


@given(st.sampled_from(["pods", "prior", "noise"]), st.none() | st.just({}) | st.just([[]]) | st.just("x"))
@settings(deadline=None)
def test_a_damaged_part_is_a_value_error(part: str, broken: object) -> None:
    m = model()
    run(m, 0.0, pods("web", 2, WEB), length_s=12)
    with pytest.raises(ValueError):
        CapacityModel.from_state({**m.state(), part: broken})


values = st.floats(0, 1) | st.just(nan)
histories = st.lists(
    st.tuples(st.floats(0, 9), values, values, st.lists(st.tuples(st.integers(0, 9), values, values), max_size=8)),
    max_size=15,
)


@given(histories)
@settings(max_examples=60, deadline=None)
def test_any_history_gives_an_answer_that_holds_together(history) -> None:  # type: ignore[no-untyped-def]
    m, t = model(), 0.0
    for elapsed_s, cpu, memory, listed in history:
        t += elapsed_s
        samples = {i: PodSample(f"p{i}", f"k{i % 3}", (a, b), per_node=i == 0) for i, a, b in listed}
        m.observe(t, [cpu, memory], pods=len(samples))
        m.observe_pods(t, list(samples.values()))
        for e in (m.estimate(), m.estimate(workload="k1"), m.estimate(workload="none")):
            if e.pod_capacity == e.pod_capacity:
                assert 0 <= e.low <= e.pod_capacity <= e.high
                if e.mode == "learning" and e.room[0] == e.room[0] and e.pod_capacity != 1:  # an empty node offers one
                    assert e.pod_capacity <= max(0.0, e.room[0]) / 0.125 + 1e-9
    json.dumps(m.state(), allow_nan=False)


leaking_histories = st.lists(
    st.tuples(st.sampled_from([5.0, 5.0, 5.0, 5.0, 30.0, 600.0]), st.integers(0, 6), st.floats(0, 0.1), st.booleans()),
    min_size=30,
    max_size=80,
)


@pytest.mark.long
@given(leaking_histories)
@settings(max_examples=40, deadline=None)
def test_any_history_goes_on_alike_after_a_restart(history) -> None:  # type: ignore[no-untyped-def]
    """Pods that grow, wake, change their workload and leave; saved and restored before every step."""
    whole, restarted, t = model(), model(), 0.0
    for elapsed_s, count, usage, relabelled in history:
        t += elapsed_s
        samples = [
            PodSample(
                f"p{i}", f"k{i % 2 + 2 * relabelled}", (usage if i % 3 else 0.0, 0.01 + 1e-5 * t), per_node=i == 0
            )
            for i in range(count)
        ]
        restarted = CapacityModel.from_state(json.loads(json.dumps(restarted.state())))
        for one in (whole, restarted):
            one.observe(t, [0.02 + usage, 0.1], pods=count)
            one.observe_pods(t, samples)
        assert repr(restarted.estimate()) == repr(whole.estimate())


def test_what_a_pod_costs_elsewhere_is_the_prior_of_a_node_that_never_ran_one() -> None:
    model = CapacityModel(config=ModelConfig(cores=4))
    model.observe(0.0, [0.02, 0.1], pods=0)
    alone = model.estimate()
    model.learn_cost([0.05, 0.0], [1e4, 0.0])
    federated = model.estimate()
    assert (alone.mode, federated.mode) == ("learning", "learning")
    assert alone.pod_capacity == pytest.approx(0.98 / 0.125)
    assert federated.pod_capacity == pytest.approx(0.98 / 0.05)
    again = CapacityModel.from_state(json.loads(json.dumps(model.state())))
    assert again.estimate() == federated
    again.learn_cost([0.0, 0.0], [0.0, 0.0])  # nobody knows any more: the node's own prior again
    assert again.estimate().pod_capacity == alone.pod_capacity


def test_while_learning_a_number_is_never_above_the_priors() -> None:
    prior = Span(4.0, 1.0, 9.0, 0)
    generous = learning(Span(50.0, 40.0, 60.0, 1), prior)
    assert (generous.value, generous.low, generous.high, generous.limiting) == (4.0, 1.0, 60.0, 0)
    modest = learning(Span(2.0, 1.5, 2.5, 1), prior)
    assert (modest.value, modest.low, modest.high, modest.limiting) == (2.0, 1.0, 9.0, 1)


@pytest.mark.parametrize("host", [None, (0.02, 0.1)], ids=["host derived", "host told"])
def test_after_a_restart_no_number_is_called_measured_before_its_pods_were_read_again(
    host: tuple[float, float] | None,
) -> None:
    m = model()
    t = run(m, 0.0, [])
    calm = pods("web", 2, WEB)
    run(m, t, calm)
    again = CapacityModel.from_state(json.loads(json.dumps(m.state())))
    again.restart_clock()
    busy, seen = [replace(pod, usage=(0.45, 0.01)) for pod in calm], []
    for tick in range(60):
        now = tick / 10
        again.observe(now, [0.92, 0.12], pods=2)
        if tick in (10, 30):  # the first time nobody has counted for long enough to know a rate
            samples = [replace(pod, usage=(nan, 0.01)) for pod in calm] if tick == 10 else busy
            again.observe_pods(now, samples, host)
        e = again.estimate()
        seen.append((now, e.mode, e.pod_capacity))
    early = [one for one in seen if one[0] < 3.0]
    assert {mode for _, mode, _ in early} <= {"predicted", "learning"}
    assert all(capacity < 2 for _, _, capacity in early), early[:12]  # it was calm before: 7.8 of WEB fitted
    assert seen[-1][1] == "measured"


def test_a_young_pod_that_takes_far_more_than_its_workload_costs_counts_at_once() -> None:
    """A template turns heavy: until a Pod had shown itself, ten seconds later, its workload kept its old price."""
    m = model()
    t = run(m, 0.0, [])
    light = pods("job", 5, (0.025, 0.01))
    t = run(m, t, light)
    assert m.estimate(workload="job").cost_vector[0] == pytest.approx(0.025, rel=0.1)
    heavy = PodSample("job-heavy", "job", (0.25, 0.01))
    m.observe_pods(t, [*light, replace(heavy, usage=(nan, nan))])
    m.observe_pods(t + 1.0, [*light, heavy])
    assert m.estimate(workload="job").cost_vector[0] > 2 * 0.025


def test_a_young_pod_that_starts_with_a_little_more_does_not() -> None:
    m = model()
    t = run(m, 0.0, [])
    web = pods("web", 5, WEB)
    t = run(m, t, web)
    m.observe_pods(t, [*web, PodSample("web-new", "web", (0.18, 0.01))])
    assert m.estimate(workload="web").cost_vector[0] == pytest.approx(WEB[0], rel=0.05)


def test_a_number_that_jumps_because_the_mix_changed_says_so() -> None:
    m = model()
    t = run(m, 0.0, [])
    web = pods("web", 3, (0.03, 0.01))
    t = run(m, t, web, length_s=120)
    before = m.estimate()
    assert before.mix_changed == ""
    batch = pods("batch", 4, (0.125, 0.01))
    t = run(m, t, web + batch, length_s=60)
    t = run(m, t, web + batch[:0], length_s=60)  # the load is as it was
    after = m.estimate()
    assert after.room[0] == pytest.approx(before.room[0], abs=0.02)
    assert after.pod_capacity < 0.6 * before.pod_capacity
    assert after.mix_changed == "batch 0 % → 59 % of arrivals"
    assert m.estimate(workload="web").mix_changed == ""
    again = CapacityModel.from_state(json.loads(json.dumps(m.state())))
    assert again.estimate().mix_changed == after.mix_changed
    run(m, t, web, length_s=400)
    assert m.estimate().mix_changed == ""  # it is the mix by now


def test_a_workload_that_gets_more_expensive_is_no_change_of_the_mix() -> None:
    m = model()
    t = run(m, 0.0, [])
    t = run(m, t, pods("web", 3, (0.03, 0.01)) + pods("cache", 2, CACHE), length_s=120)
    run(m, t, pods("web", 3, (0.12, 0.01)) + pods("cache", 2, CACHE), length_s=120)
    assert m.estimate().mix_changed == ""
