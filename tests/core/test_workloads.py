"""Workloads: what one costs, what is remembered of it, how often it arrives, and how many there may be."""

from collections.abc import Sequence
from math import isnan, nan

import pytest

from carico_agent.core.pods import PodReadings
from carico_agent.core.workloads import MAX_WORKLOADS, OTHER, Workload, WorkloadCost, Workloads, checked


def pod(workload: Workload, uid: str, usage: tuple[float, ...], since_t: float = 0.0) -> PodReadings:
    found = workload.pods[uid] = PodReadings(workload.name, since_t, len(usage))
    for t in range(0, 60, 5):
        found.read(since_t + t, usage, workload.ramp_s, workload.cost)
    return found


def always(cost: Sequence[float], ran_s: float) -> bool:
    return True


def workload(*costs: float) -> Workload:
    found = Workload("shop/web", False, 2)
    for i, cost in enumerate(costs):
        pod(found, f"web-{i}", (cost, 0.01))
    found.renew()
    return found


def test_a_workload_costs_the_mean_of_its_pods() -> None:
    web = workload(0.10, 0.12, 0.14)
    assert web.cost == pytest.approx((0.12, 0.01))
    assert 0.01 < web.spread[0] < 0.03
    assert web.cost_sd[0] < web.spread[0]


def test_what_it_cost_is_remembered_when_none_runs() -> None:
    web = workload(0.10, 0.12)
    for uid in list(web.pods):
        web.leave(uid)
    web.renew()
    assert web.cost[0] == pytest.approx(0.11)
    for _ in range(1000):
        web.forget(0.5)
    web.renew()
    assert web.cost[0] == pytest.approx(0.11)
    assert web.cost_sd[0] > 0.01


def test_a_pod_that_sleeps_does_not_make_its_workload_cheap() -> None:
    assert workload(0.10, 0.0001, 0.0001).cost[0] == pytest.approx(0.10)


def test_those_that_left_asleep_are_forgotten_when_others_work() -> None:
    web = workload(0.001, 0.001, 0.001)
    for uid in list(web.pods):
        web.leave(uid)
    pod(web, "works-0", (0.1, 0.01))
    pod(web, "works-1", (0.1, 0.01))
    web.renew()
    assert web.cost[0] == pytest.approx(0.1)
    web.leave("works-0")
    web.leave("works-1")
    web.renew()
    assert web.cost[0] == pytest.approx(0.1)


def test_who_sleeps_does_not_count_with_its_memory_either() -> None:
    web = workload(0.1, 0.1)
    for i in range(4):
        pod(web, f"waits-{i}", (0.002, 0.004))
    web.renew()
    assert web.cost == pytest.approx((0.1, 0.01))


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_new_version_is_believed_soon(factor: float) -> None:
    """Twenty of the old one have left; five of the new one come, then each that leaves is replaced."""
    web = Workload("shop/web", False, 2)
    for i in range(20):
        pod(web, f"old-{i}", (0.1, 0.01))
        web.leave(f"old-{i}")
        web.renew()
    for i in range(10):
        pod(web, f"new-{i}", (0.1 * factor, 0.01), since_t=1000.0 + i)
        web.renew()
        if i >= 5:
            web.leave(f"new-{i - 5}")
            web.renew()
    assert web.cost == pytest.approx((0.1 * factor, 0.01), rel=0.1)


def test_pods_that_differ_are_no_new_version() -> None:
    web = Workload("shop/web", False, 2)
    for i in range(20):
        pod(web, f"old-{i}", (0.1 * (1.3 if i % 2 else 0.7), 0.01))
        web.leave(f"old-{i}")
    for i in range(6):
        pod(web, f"large-{i}", (0.13, 0.01), since_t=1000.0 + i)
    web.leave("large-0")
    assert web.past[0][0] > 20


def leaking(grow: list[float], asleep: int = 0) -> Workload:
    """A workload watched for five minutes, each growing by its own share of the node per second."""
    found = Workload("shop/web", False, 1)
    for i, per_s in enumerate(grow + [0.0] * asleep):
        start = 0.03 if i < len(grow) else 0.0
        one = found.pods[f"web-{i}"] = PodReadings(found.name, 0.0, 1)
        for t in range(0, 300, 5):
            one.read(float(t), (start + per_s * t,), 6.0, found.cost)
    found.renew()
    for _ in range(20):
        found.learn_growth()
    found.renew()
    return found


def test_a_reading_in_which_a_pod_wakes_teaches_its_workload_nothing() -> None:
    web = workload(0.0, 0.0)
    one = web.pods["web-0"]
    one.read(60.0, (0.02, 0.01), web.ramp_s, web.cost)  # half a second of two was work
    web.renew()
    assert web.cost[0] == 0
    one.read(65.0, (0.1, 0.01), web.ramp_s, web.cost)
    web.renew()
    assert web.cost == pytest.approx((0.1, 0.01))


def test_pods_that_grow_together_leak_and_sleepers_beside_them_do_not() -> None:
    assert leaking([4e-5, 5e-5, 4e-5], asleep=4).growth[0] == pytest.approx(4.3e-5, rel=0.15)
    leaky = leaking([4e-5, 5e-5, 4e-5], asleep=4)
    assert leaky.cost[0] == pytest.approx(0.03 + 300 * 4.3e-5, rel=0.1)  # while none has left: half of twice its age


def test_pods_that_changed_each_in_its_own_way_do_not_leak() -> None:
    assert leaking([9e-5, -4e-5, 3e-5]).growth == [0.0]


def test_how_long_its_pods_rise_is_a_median() -> None:
    web = workload()
    assert web.ramp_s == 0
    for i, age_s in enumerate([30.0, 35.0, 0.0, 32.0, 110.0]):
        web.learn_ramp(f"web-{i}", age_s)
    assert web.ramp_s == 32.0
    web.learn_ramp("web-4", 300.0)  # the same Pod, seen to rise on
    assert (web.ramp_s, len(web.rises)) == (32.0, 5)
    again = Workload("shop/web", False, 2)
    again.restore(web.state())
    assert (again.ramp_s, again.rises) == (web.ramp_s, web.rises)
    earlier = web.state() | {"ramp_s": 24.0}
    del earlier["rises"]
    again.restore(earlier)
    assert again.ramp_s == 24.0


def test_what_is_unknown_stays_unknown_where_another_resource_leaks() -> None:
    web = Workload("shop/web", False, 2)
    for i in range(4):
        one = web.pods[f"web-{i}"] = PodReadings(web.name, 0.0, 2)
        for t in range(0, 300, 5):
            one.read(float(t), (0.03 + 5e-5 * t, nan), 6.0, web.cost)
    for _ in range(3):
        web.learn_growth()
        web.renew()
    assert web.growth[0] > 0
    assert isnan(web.cost[1])
    web.leave("web-0")
    assert web.past[1] == [0.0, 0.0, 0.0]


def test_the_cost_of_a_leaking_workload_does_not_depend_on_what_it_was() -> None:
    """Young Pods of a workload that once grew a lot are no sleepers beside what they will become."""
    web = leaking([4e-5] * 4)
    web.life_s = 7200.0
    web.renew()
    costs = {web.cost}
    for _ in range(4):
        web.renew()
        costs.add(web.cost)
    web.cost = (nan,)  # as after a restart
    web.renew()
    assert costs == {web.cost}


def test_when_another_resource_changes_growth_is_measured_anew() -> None:
    web = Workload("shop/web", False, 2)
    for i in range(4):
        one = web.pods[f"web-{i}"] = PodReadings(web.name, 0.0, 2)
        for k in range(200):
            one.read(5.0 * k, (0.05 if k // 20 % 2 else 0.08, 0.05 + 5e-5 * k), 6.0, web.cost)
            web.learn_growth()
            web.renew()
    assert web.growth[1] == 0 or web.growth[1] == pytest.approx(1e-5, rel=0.5)


def test_a_pod_known_from_the_cluster_is_not_made_cheap_by_sleepers_here() -> None:
    web = workload(0.0, 0.0)
    web.elsewhere = WorkloadCost("shop/web", (0.1, 0.01), (0.01, 0.001), 20, 5.0)
    web.renew()
    assert web.cost[0] == pytest.approx(0.1)


def test_running_pods_that_differ_overrule_the_memory() -> None:
    web = workload(0.10, 0.10, 0.10)
    for uid in list(web.pods):
        web.leave(uid)
    for i in range(3):
        pod(web, f"new-{i}", (0.30, 0.01))
    web.renew()
    assert web.cost[0] == pytest.approx(0.30, rel=0.1)


def test_unknown_readings_stay_unknown() -> None:
    web = Workload("x", False, 2)
    pod(web, "a", (0.1, nan))
    web.renew()
    assert web.cost[0] == pytest.approx(0.1)
    assert isnan(web.cost[1])


def test_there_are_at_max_64_and_the_rest_is_other() -> None:
    workloads = Workloads(2)
    for i in range(200):
        found = workloads.find(f"workload-{i}", False)
        found.arrivals = 1.0
    assert len(workloads.by_name) == MAX_WORKLOADS
    assert workloads.find("workload-199", False).name == OTHER


def test_a_forgotten_workload_makes_room() -> None:
    workloads = Workloads(2)
    for i in range(MAX_WORKLOADS + 5):
        workloads.find(f"workload-{i}", False)
    assert OTHER not in workloads.by_name
    assert f"workload-{MAX_WORKLOADS + 4}" in workloads.by_name


def test_the_clusters_cost_is_used_for_a_workload_that_never_ran_here_and_is_not_sent_back() -> None:
    workloads = Workloads(2)
    workloads.learn([WorkloadCost("shop/web", (0.2, 0.1), (0.02, 0.01), 50, 10.0)])
    web = workloads.find("shop/web", False)
    web.renew()
    assert web.cost == (0.2, 0.1)
    assert web.elsewhere is not None and not web.shown
    assert workloads.local(32, always) == []
    pod(web, "a", (0.1, 0.1))
    web.renew()
    assert 0.1 < web.cost[0] < 0.13
    assert workloads.local(32, always)[0].cost[0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "cost",
    [
        WorkloadCost("a", (0.1,), (0.1, 0.1), 1, 1.0),
        WorkloadCost("a", (1e16, 0.1), (0.1, 0.1), 1, 1.0),
        WorkloadCost("a", (-0.1, 0.1), (0.1, 0.1), 1, 1.0),
        WorkloadCost("a", (0.1, 0.1), (0.1, 0.1), -1, 1.0),
        WorkloadCost("a", (0.1, 0.1), (0.1, 0.1), 1, float("inf")),
    ],
)
def test_nonsense_from_elsewhere_is_refused(cost: WorkloadCost) -> None:
    with pytest.raises(ValueError, match="workload 'a'"):
        checked([cost], 2)
