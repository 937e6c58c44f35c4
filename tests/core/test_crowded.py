"""Pods that wait for a CPU: what is known from quieter hours counts for more, and the interval widens."""

import json
from math import nan

import pytest

from carico_agent.core import CapacityModel, ModelConfig, PodSample
from carico_agent.core.evidence import CostEvidence, believed
from carico_agent.core.pods import MEMORY_READINGS, PodReadings

CORES = 2
WANTS = 0.05
"""0.2 of 2 cores, in shares of twice the cores: works 10 ms in every 50 ms."""


def observe(model, since_t, seconds, samples):
    """`samples(t)` every 5 s, the node's usage every second."""
    for step in range(seconds):
        t = float(since_t + step)
        model.observe(t, (0.9, 0.2), len(samples(t)))
        if step % 5 == 0:
            model.observe_pods(t, samples(t))
    return since_t + seconds


def model():
    return CapacityModel(("cpu", "memory"), ModelConfig(cores=CORES))


def one(name, cpu, got):
    return lambda t: [PodSample(f"{name}-0", name, (cpu, 0.01), got_ratio=got)]


def cost_of(model, name):
    found = next(workload for workload in model.estimate().workloads if workload.workload == name)
    return found.cost[0], found.cost_sd[0]


def test_a_cost_known_from_quieter_hours_stays_when_neighbours_get_busy():
    m = model()
    t = observe(m, 0, 120, one("open", WANTS, 1.0))
    observe(m, t, 1800, one("open", 4.1 * WANTS, 0.19))  # a backlog: it reads as a busy loop
    cost, _ = cost_of(m, "open")
    assert cost == pytest.approx(WANTS, rel=0.1)


def test_a_pod_that_began_in_a_crowd_has_an_interval_that_holds_what_it_may_want():
    m = model()
    t = observe(m, 0, 10, lambda t: [])
    observe(m, t, 60, one("open", 4.1 * WANTS, 0.19))
    cost, cost_sd = cost_of(m, "open")
    assert cost == pytest.approx(4.1 * WANTS, rel=0.05)
    assert cost - 1.645 * cost_sd <= WANTS <= cost


def test_a_pod_whose_readings_scatter_in_a_crowd_has_shown_itself_all_the_same():
    m = model()
    t = observe(m, 0, 10, lambda t: [])
    scatter = {0: 0.1, 1: 0.13, 2: 0.17, 3: 0.22}
    observe(m, t, 20, lambda t: [PodSample("a", "think", (scatter[int(t - 10) // 5], 0.01), got_ratio=0.3)])
    assert cost_of(m, "think")[0] > 0.1


def test_the_first_quiet_minute_corrects_what_was_learned_in_a_crowd():
    m = model()
    t = observe(m, 0, 10, lambda t: [])
    t = observe(m, t, 600, one("open", 4.1 * WANTS, 0.19))
    observe(m, t, 15, one("open", WANTS, 1.0))
    cost, cost_sd = cost_of(m, "open")
    assert cost == pytest.approx(WANTS, rel=0.1) and cost_sd < 0.3 * cost


def test_a_pod_that_got_more_than_it_was_believed_to_want_is_believed_at_once():
    m = model()
    t = observe(m, 0, 120, one("web", 0.015, 1.0))
    observe(m, t, 15, one("web", 0.25, 0.2))  # it turned into a busy loop, beside eight others
    assert cost_of(m, "web")[0] == pytest.approx(0.25, rel=0.1)


def test_a_pod_that_wants_less_than_it_did_is_believed_in_a_crowd_too():
    m = model()
    t = observe(m, 0, 120, one("web", 0.25, 1.0))
    observe(m, t, 60, one("web", 0.1, 0.4))
    assert cost_of(m, "web")[0] == pytest.approx(0.1, rel=0.1)


def test_a_new_pod_in_a_crowd_does_not_overrule_those_that_left():
    m = model()
    t = observe(m, 0, 120, lambda t: [PodSample("a", "open", (WANTS, 0.01))])
    t = observe(m, t, 10, lambda t: [])
    observe(m, t, 300, lambda t: [PodSample("b", "open", (4.1 * WANTS, 0.01), got_ratio=0.19)])
    assert cost_of(m, "open")[0] == pytest.approx(WANTS, rel=0.1)


def test_a_new_version_that_got_more_than_the_old_one_cost_overrules_it():
    m = model()
    t = observe(m, 0, 120, lambda t: [PodSample("a", "web", (0.01, 0.01))])
    t = observe(m, t, 10, lambda t: [])
    observe(m, t, 60, lambda t: [PodSample("b", "web", (0.25, 0.01), got_ratio=0.2)])
    assert cost_of(m, "web")[0] > 0.15


def test_a_crowded_node_tells_others_how_little_it_knows():
    m = model()
    t = observe(m, 0, 10, lambda t: [])
    observe(m, t, 60, one("open", 4.1 * WANTS, 0.19))
    (told,) = m.local_workloads()
    assert told.cost[0] - 1.645 * told.spread[0] <= WANTS


def test_memory_is_not_weighed_by_waiting():
    pod = PodReadings("web", float("-inf"), 2)
    for step in range(30):
        pod.read(5.0 * step, (0.25, 0.01 if step < 15 else 0.0115), 0.0, (nan, nan), 0.2)
    assert pod.mean[1] == pytest.approx(0.0115, rel=0.05) and pod.readings[1] == MEMORY_READINGS
    assert pod.readings[0] < 0.1 and pod.waited == pytest.approx(0.8)


def test_where_none_waits_it_is_the_plain_mean():
    found = believed([CostEvidence(1.0), CostEvidence(3.0)], CostEvidence(5.0, pods=1.0), 7.0, 0.2)
    assert found.cost == pytest.approx((1 + 3 + 5 + 0.25 * 7) / 3.25)


def test_pods_that_all_wait_are_as_many_as_they_are():
    few, many = (believed([CostEvidence(1.0, 0.3)] * n, CostEvidence(0.0, pods=0.0), floor=0.1) for n in (1, 16))
    assert few.cost == many.cost == 1.0
    assert many.variance < few.variance


def test_other_nodes_know_better_than_a_crowd_unless_it_proves_them_wrong():
    nothing = CostEvidence(0.0, pods=0.0)
    assert believed([CostEvidence(0.8, 0.2)], nothing, 0.2).cost == pytest.approx(0.2, rel=0.05)
    assert believed([CostEvidence(2.0, 0.3)], nothing, 0.2).cost > 1.5


def test_a_restart_keeps_what_was_known_of_waiting():
    m = model()
    t = observe(m, 0, 60, lambda t: [PodSample("a", "open", (WANTS, 0.01), got_ratio=0.9)])
    t = observe(m, t, 10, lambda t: [])
    t = observe(m, t, 60, one("open", 4.1 * WANTS, 0.19))
    again = CapacityModel.from_state(json.loads(json.dumps(m.state())))
    assert cost_of(again, "open") == cost_of(m, "open")
    for each in (m, again):
        observe(each, t, 60, one("open", WANTS, 1.0))
    assert again.state() == m.state()


def test_a_share_beyond_one_is_refused():
    with pytest.raises(ValueError, match=r"got 1\.5"):
        PodSample("a", "web", (0.1,), got_ratio=1.5).check(1)


def full_at(samples):
    """Pod-Capacity for a Pod of one core on two cores, with these Pods on the node."""
    m = CapacityModel(("cpu", "memory"), ModelConfig(cores=CORES, service_limits={"cpu": 0.5}))
    for step in range(60):
        m.observe(float(step), (sum(s.usage[0] for s in samples), 0.1), len(samples))
        if step % 5 == 0:
            m.observe_pods(float(step), samples)
    found = m.estimate("loop")
    return found.pod_capacity, found.limits[0]


def test_the_cpu_of_a_node_with_a_service_is_full_sooner():
    loop, web = PodSample("a", "loop", (0.25, 0.01)), ("w", "web", (0.05, 0.01), False, 1.0)
    assert full_at([loop]) == (pytest.approx(3.0, abs=0.1), 1.0)
    assert full_at([loop, PodSample(*web)]) == (pytest.approx(2.8, abs=0.1), 1.0)
    assert full_at([loop, PodSample(*web, service=True)]) == (pytest.approx(0.8, abs=0.1), 0.5)
