"""throttling: the paper's equations, the three causes, one remedy each."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.plugin_api import Refuse

from . import Plugin, ThrottlingSettings
from .diagnosis import GroupThrottling, Quota, ThrottledPod, diagnose
from .latency import enough_cores, response_ms, serial_ms
from .threads import Threads
from .window import WindowUsage


def test_the_papers_example():
    assert response_ms(500, 50, 100) == 950  # section 1.4
    assert response_ms(500, 50, 100, parallel=2) == 500 + 19 * 75


def test_figure_5_15():
    assert serial_ms(500, 50, 100, 2) == [950, 1950] and response_ms(500, 50, 100, parallel=2) == 1925
    assert serial_ms(500, None, 100, 3) == [500, 1000, 1500]


@given(cpu=st.integers(1, 2000), quota=st.integers(1, 400), n=st.integers(1, 8))
def test_one_after_the_other_against_a_simulation(cpu, quota, n):
    """One thread, period by period: works until its quota or the period is spent."""
    share, done, now = min(quota, 100.0), [], 0.0
    for _ in range(n):
        left = float(cpu)
        while left > 1e-9:
            spent = now % 100.0
            step = min(left, share - spent)
            if step <= 1e-9:
                now += 100.0 - spent
                continue
            now, left = now + step, left - step
        done.append(now)
    assert serial_ms(cpu, quota, 100, n) == pytest.approx(done)


@pytest.mark.parametrize("request_ms", [None, 30])
def test_the_order_is_not_explained_where_it_does_not_matter(request_ms):
    assert (
        "one after the other" not in diagnose(case(0.9, 0.5, Quota(200, 100), parallel=2, request_ms=request_ms)).text
    )


@given(cpu=st.integers(1, 2000), quota=st.integers(1, 400), n=st.integers(1, 8))
def test_equation_1_20_against_a_simulation(cpu, quota, n):
    """n requests, period by period: each gets t_q/n per period (the paper's assumption) until its CPU time is done."""
    period, share = 100.0, min(quota / n, 100.0)
    full = math.ceil(cpu / share - 1e-9) - 1
    simulated = full * period + (cpu - full * share)
    assert response_ms(cpu, quota, period, n) == pytest.approx(simulated)


@given(cpu=st.floats(1, 2000), quota=st.floats(1, 400), n=st.integers(1, 8))
def test_less_quota_or_more_threads_never_help(cpu, quota, n):
    assert response_ms(cpu, quota, 100, n) >= cpu
    assert response_ms(cpu, quota, 100, n + 1) >= response_ms(cpu, quota, 100, n) - 100  # ⌈⌉ may win one period's rest
    assert response_ms(cpu, enough_cores(cpu, 100, n) * 100, 100, n) == pytest.approx(cpu)


def spent(ratio=0.0, used=0.0, waiting=0.0, periods=600):
    return WindowUsage(60.0, periods, int(periods * ratio), 1.0, used, waiting)


def case(ratio, used, quota, **kw):
    return ThrottledPod(GroupThrottling("own", spent(ratio, used), quota), **{"cpus": 8, **kw})


@pytest.mark.parametrize(
    ("given_", "cause", "remedy", "cores", "threads"),
    [
        (case(0.01, 0.3, Quota(50, 100)), "none", "nothing to do", None, None),
        (case(0.9, 0.5, Quota(50, 100), parallel=1), "own quota", "raise the limit", 1.0, None),
        (case(0.9, 2.0, Quota(200, 100), parallel=5), "own quota", "raise the limit", 5.0, None),
        (case(0.5, 0.8, Quota(200, 100), parallel=5), "own quota", "reduce parallelism", None, 2),
        (case(0.5, 0.8, Quota(200, 100), parallel=5, whole_guaranteed=True), "own quota", "pin whole CPUs", None, 2),
        (case(0.5, 0.2, Quota(50, 100), parallel=4, request_ms=40), "own quota", "reduce parallelism", None, 1),
        (case(0.5, 0.2, Quota(50, 100), parallel=2, request_ms=80), "own quota", "raise the limit", 1.6, None),
        (case(0.9, 0.5, Quota(50, 100), parallel=64, cpus=4), "own quota", "raise the limit", 4.0, None),
        (ThrottledPod(GroupThrottling("own", spent(waiting=0.6))), "node contention", "pin whole CPUs", None, None),
        (
            ThrottledPod(
                GroupThrottling("own", spent(waiting=0.6)),
                (GroupThrottling("pod", spent(0.5), Quota(100, 100)),),
                parallel=1,
            ),
            "parent's quota",
            "raise the limit",
            1.5,
            None,
        ),
        (ThrottledPod(GroupThrottling("own", spent())), "none", "nothing to do", None, None),
    ],
)
def test_one_cause_one_remedy(given_, cause, remedy, cores, threads):
    got = diagnose(given_)
    assert (got.cause, got.remedy, got.cores, got.threads) == (cause, remedy, cores, threads), got.text


def stat(folder, usage_usec, periods, throttled, throttled_usec=0):
    (folder / "cpu.stat").write_text(
        f"usage_usec {usage_usec}\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {throttled_usec}\n"
    )


def test_from_files_to_a_sentence(node):
    node.pod("web", containers={"main": {"cpu.max": "50000 100000"}, "side": {}})
    main = node.root / "kubepods.slice/kubepods-burstable.slice/web/main"
    plugin = Plugin(ThrottlingSettings(), count=lambda view, cgroup: Threads(9, 2))
    for t in range(0, 65, 5):
        stat(main, t * 500_000, t * 10, t * 9, t * 400_000)
        plugin.tick(node.view(t), node.writer)
    row = plugin.answer({"pod": "we*", "request_ms": "500"})["pods"][0]
    assert (row["cause"], row["remedy"], row["raise_to_cores"]) == ("own quota", "raise the limit", 2.0)
    assert (row["container"], row["limit_cores"], row["threads"], row["parallel"]) == ("main", 0.5, 9, 2)
    assert row["throttled_ratio"] == 0.9 and row["used_cores"] == 0.5
    assert row["latency"] == {
        "request_ms": 500.0,
        "alone_ms": 950.0,
        "parallel_ms": 1925.0,
        "serial_ms": [950.0, 1950.0],
    }
    assert (
        "2 requests of 500 ms take 1925 ms each side by side; one after the other 950 to 1950 ms, 1450" in row["text"]
    )
    assert set(row["windows"]) == {"10s", "60s", "300s"}
    assert plugin.answer({"pod": "other"})["pods"] == []
    assert {m.name for m in plugin.metrics()} == {"throttled_ratio", "cpu_used_cores", "diagnosis"}


def test_the_parents_quota_is_told_apart(node):
    node.pod("web", containers={"main": {}})
    pod = node.root / "kubepods.slice/kubepods-burstable.slice/web"
    (pod / "cpu.max").write_text("100000 100000\n")
    plugin = Plugin(ThrottlingSettings(), count=lambda view, cgroup: Threads(4, 4))
    for t in range(0, 65, 5):
        stat(pod, t * 900_000, t * 10, t * 8)
        stat(pod / "main", t * 900_000, 0, 0)
        plugin.tick(node.view(t), node.writer)
    row = plugin.report()["pods"][0]
    assert (row["cause"], row["raise_to_cores"]) == ("parent's quota", 4.0) and "of web" in row["text"]


def test_a_reset_counter_is_not_a_diagnosis(node):
    pod = node.pod("web", files={"cpu.max": "50000 100000"})
    plugin = Plugin(ThrottlingSettings(), count=lambda view, cgroup: None)
    stat(pod, 9_000_000, 1000, 900)
    plugin.tick(node.view(0), node.writer)
    stat(pod, 0, 0, 0)
    plugin.tick(node.view(5), node.writer)
    stat(pod, 1000, 50, 0)
    plugin.tick(node.view(10), node.writer)
    assert plugin.report()["pods"][0]["cause"] == "none"


def test_memory_is_bounded_and_the_dead_are_forgotten(node):
    for n in range(3):
        node.pod(f"p{n}")
    plugin = Plugin(ThrottlingSettings(window_s=10), count=lambda view, cgroup: None)
    for t in range(0, 500, 5):
        plugin.tick(node.view(t), node.writer)
    assert plugin._histories and all(len(h._readings) < 15 for h in plugin._histories.values())
    node.pods.clear()
    plugin.tick(node.view(1000), node.writer)
    assert not plugin._histories


def test_writes_nothing_and_refuses_without_cgroup_v2(node):
    node.pod("web")
    plugin = Plugin(ThrottlingSettings())
    plugin.tick(node.view(0), node.writer)
    assert not node.cgroups.outcomes.counts
    (node.root / "cgroup.controllers").unlink()
    with pytest.raises(Refuse, match="cgroup v2"):
        plugin.start(node.view(0))
