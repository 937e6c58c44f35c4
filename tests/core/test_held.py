"""Pod-Capacity that holds: what fits now less what those that run will need, and what the new ones will."""

from math import isnan

import numpy as np
import pytest

from carico_agent.core import CapacityModel, ModelConfig, PodSample, WorkloadCost
from carico_agent.core.history import DAY_SLOTS
from carico_agent.core.profile import BINS, Profile

DAY_S = 86400.0
START_T = 20_000 * DAY_S


def noon(slot: int) -> bool:
    return slot % DAY_SLOTS in range(144, 156)


def node(days: float, pods: int = 4, peak: float = 0.15) -> CapacityModel:
    """Pods of .05 each that use `peak` at noon; the model is asked at the end of the days."""
    model = CapacityModel(("cpu", "memory"), ModelConfig(cores=4))
    slots = int(days * DAY_SLOTS)
    for slot in range(slots):
        each = peak if noon(slot) else 0.05
        t = slot * 300.0
        model.outlook.observe(START_T + t, [PodSample(f"web-{i}", "shop/web", (each, 0.05)) for i in range(pods)])
    settle(model, slots * 300.0, [PodSample(f"web-{i}", "shop/web", (0.05, 0.05)) for i in range(pods)])
    return model


def settle(model: CapacityModel, t: float, pods: list[PodSample]) -> None:
    used = [sum(pod.usage[i] for pod in pods) for i in range(2)]
    for second in range(60):
        for tenth in range(10):
            model.observe(t + second + tenth / 10, used, len(pods))
        if second % 5 == 0:
            again = [PodSample(pod.uid, pod.workload, pod.usage, pod.per_node) for pod in pods]
            model.observe_pods(t + second, again, wall_t=START_T + t + second)


def test_a_number_that_holds_for_the_day_leaves_room_for_noon() -> None:
    model = node(3)
    now, hour, day = (model.estimate("shop/web", horizon_s=s) for s in (None, 3600.0, DAY_S))
    assert now.pod_capacity == pytest.approx(16, abs=0.5)  # .8 of the cpu is free, .05 each
    # at noon 4 + n Pods use .15 each: 4 + n <= 1 / .15
    assert 1.0 < day.pod_capacity < 2.8
    assert day.pod_capacity < hour.pod_capacity <= now.pod_capacity
    assert (day.horizon_s, day.outlook, day.mode, day.limiting) == (DAY_S, "known", "predicted", "cpu")
    assert day.low <= day.pod_capacity <= day.high <= now.high
    assert day.slots == day.pods + day.pod_capacity
    assert (now.horizon_s, now.outlook) == (0.0, "")


def test_the_next_pod_is_the_mixture_that_arrives() -> None:
    model = node(3)
    assert model.estimate(horizon_s=DAY_S).pod_capacity == pytest.approx(
        model.estimate("shop/web", horizon_s=DAY_S).pod_capacity, rel=0.2
    )


def test_until_a_day_was_seen_the_number_says_so() -> None:
    early = node(0.4).estimate("shop/web", horizon_s=DAY_S)
    assert (early.outlook, early.mode) == ("first day", "learning")
    assert early.pod_capacity <= node(0.4).estimate("shop/web").pod_capacity


def test_without_pods_measured_nothing_is_promised_about_the_coming_hours() -> None:
    model = CapacityModel(("cpu", "memory"), ModelConfig(cores=4))
    for tick in range(100):
        model.observe(tick * 0.1, [0.1, 0.1], 2)
    held = model.estimate(horizon_s=DAY_S)
    assert isnan(held.pod_capacity)
    assert (held.outlook, held.mode) == ("unknown", "learning")


def test_a_full_day_ahead_holds_nothing_though_there_is_room_now() -> None:
    model = node(3, pods=8, peak=0.15)
    assert model.estimate("shop/web").pod_capacity > 5
    assert model.estimate("shop/web", horizon_s=DAY_S).pod_capacity == 0.0


def test_a_workload_without_a_past_takes_at_all_times_what_it_costs() -> None:
    model = node(3)
    prior = model.estimate("never/seen", horizon_s=DAY_S)
    assert prior.pod_capacity == pytest.approx(0.4 / 0.125, rel=0.4)  # .6 at noon; one core is an eighth


def test_with_the_clusters_profile_a_node_that_never_ran_a_workload_knows_its_day() -> None:
    """One core by the prior, and by what others know .02 now and .3 at noon."""
    model = node(3, peak=0.1)
    model.learn_workloads([WorkloadCost("new", (0.02, 0.02), (0.002, 0.002), 10, 5.0)])
    blind = model.estimate("new", horizon_s=DAY_S).pod_capacity
    day = np.full((2, BINS), 0.02, np.float32)
    day[0, 24:26] = 0.3
    model.learn_workloads([WorkloadCost("new", (0.02, 0.02), (0.002, 0.002), 10, 5.0, profile=Profile(day))])
    told = model.estimate("new", horizon_s=DAY_S).pod_capacity
    truth = (1 - 0.4) / 0.3
    assert abs(told - truth) < 1.0
    assert blind > 5 * truth


def test_a_jobs_own_lifetime_is_its_horizon() -> None:
    model = node(2)
    for minute in range(60):
        job = PodSample(f"job-{minute // 3}", "batch/job", (0.1, 0.01))
        model.outlook.observe(START_T + 2 * DAY_S + 120 + 60.0 * minute, [job])
    assert model.horizon_s("batch/job") == pytest.approx(120.0)
    assert model.horizon_s("shop/web") == DAY_S
    assert model.horizon_s() == DAY_S
