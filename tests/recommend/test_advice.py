"""Every method on every kind of container, and each step from an estimate to a recommendation with its reason."""

import math

import numpy as np
import pytest

from carico_agent.recommend.advice import Recommendation, advise
from carico_agent.recommend.history import ContainerHistory, MinuteSample
from carico_agent.recommend.method import Options, methods
from carico_agent.recommend.workload import NodeSize, OwnerObject, Resources, guess

T = 1.7e9
MIB = 2**20
WEB = OwnerObject("shop", "Deployment", "web")
METHODS = tuple(methods())


def history(
    minutes: int = 2000, cpu: float = 0.5, memory: float = 600.0, noise: float = 0.1, **kw: int
) -> ContainerHistory:
    rng, made = np.random.default_rng(3), ContainerHistory()
    for n in range(minutes):
        factor = 1.0 + noise * rng.random()
        made.observe(MinuteSample(T + 60 * n, cpu * factor, memory * MIB * factor, **kw))
    return made


def advice(*histories: ContainerHistory, **kw: object) -> Recommendation:
    return advise(WEB, "app", ("web-1",), histories or (history(),), **kw)  # type: ignore[arg-type]


def test_methods_are_found() -> None:
    assert METHODS[0] == "vpa" and set(METHODS) == {"vpa", "peak", "walk", "arima"}


@pytest.mark.parametrize("method", METHODS)
def test_a_usual_container(method: str) -> None:
    found = advice(method=method)
    assert 0.5 <= found.cpu.request <= 0.75 and 600 * MIB <= found.memory.request <= 850 * MIB
    assert found.cpu.method == method and found.cpu.why and found.memory.why
    assert found.cpu.lower <= found.cpu.request <= found.cpu.upper
    assert found.cpu.request * 1000 == pytest.approx(round(found.cpu.request * 1000))
    assert found.memory.request % MIB == 0 and found.memory.limit is None
    assert (found.samples, found.confidence) == (2000, "medium")


@pytest.mark.parametrize("method", METHODS)
def test_too_little_is_a_question_mark(method: str) -> None:
    found = advice(history(99), method=method)
    assert found.cpu.request is None and found.cpu.why == (
        "samples so far: 99; 100 are needed, and there is one per minute",
    )
    assert advice(history(50), history(50), method=method).cpu.request is not None  # replicas count together
    empty = ContainerHistory()
    for n in range(200):
        empty.observe(MinuteSample(T + 60 * n, 0.5 + n / 1000))
    assert advice(empty, method=method).memory.why == ("no sample of memory",)


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_is_value_and_margin(method: str) -> None:
    found = advice(history(noise=0.0), method=method)
    assert found.cpu.request == pytest.approx(0.575) and found.cpu.method == "constant"
    assert found.memory.request == 690 * MIB and "constant" in found.memory.why[0]


@pytest.mark.parametrize("method", ["walk", "arima"])
def test_forecasts_fall_back_to_peak_by_name(method: str) -> None:
    made = history(2000)
    for n in range(2005, 2060):  # a gap: the run has 55 minutes
        made.observe(MinuteSample(T + 60 * n, 0.4 + n % 7 / 100, (500 + n % 7) * MIB))
    found = advice(made, method=method)
    assert found.cpu.method == "peak"
    assert f"no forecast by {method}: 55 samples, 60 are needed; peak is used" in found.cpu.why[0]
    straight = ContainerHistory()
    for n in range(200):
        straight.observe(MinuteSample(T + 60 * n, 0.1 + n / 1000, (300 + n) * MIB))
    if method == "arima":
        assert "rank-deficient" in advice(straight, method=method).memory.why[0]


def test_options() -> None:
    base = advice().cpu.request
    assert advice(options=Options(share=0.5)).cpu.request <= base
    assert advice(options=Options(margin=0.0)).cpu.request == pytest.approx(base / 1.15, abs=0.002)
    small = advice(history(cpu=0.01), options=Options(whole_cpus=True))  # a sidecar is not raised to a CPU
    assert small.cpu.request < 0.1 and "only Guaranteed Pods" in small.cpu.why[-1]
    whole = advice(options=Options(whole_cpus=True, guaranteed=True))
    assert whole.cpu.request == 1.0 and any("whole CPUs" in why for why in whole.cpu.why)
    guaranteed = advice(options=Options(guaranteed=True))
    assert (
        guaranteed.cpu.limit == guaranteed.cpu.request >= base and guaranteed.memory.limit == guaranteed.memory.request
    )
    assert guaranteed.memory.request >= 600 * 1.1 * 1.1 * MIB


def test_floors_are_shared_by_containers() -> None:
    small = history(cpu=0.001, memory=5.0)
    alone, five = advice(small), advice(small, containers=5)
    assert (alone.cpu.request, alone.memory.request) == (0.025, 250 * MIB)
    assert (five.cpu.request, five.memory.request) == (0.012, 50 * MIB)  # one bucket of 10m and 15 % is above 5m
    assert "floor" in alone.memory.why[-1] and "shared by 5" in five.memory.why[-1]


def test_never_above_the_largest_node_and_says_so() -> None:
    found = advice(largest=NodeSize(0.25, 512.4 * MIB))
    assert found.cpu.request == 0.25 and found.memory.request == 512 * MIB
    assert "cut from" in found.cpu.why[-1] and "largest node" in found.memory.why[-1]
    roomy = advice(history(120), largest=NodeSize(0.9, 1000 * MIB))  # two hours: the upper bound is 13 times p95
    assert roomy.cpu.upper == 0.9 and roomy.memory.upper == 1000 * MIB and roomy.cpu.request < 0.9
    whole = advice(history(cpu=3.0), largest=NodeSize(2.9, 1e12), options=Options(whole_cpus=True, guaranteed=True))
    assert whole.cpu.request == 2.0


def test_oom_kills() -> None:
    made = history()
    made.oom(T + 60 * 2000, 1000 * MIB)
    found = advice(made)
    assert found.memory.request == pytest.approx(1200 * MIB, rel=0.2) and found.memory.request >= 1200 * MIB
    assert any("OOM-killed once" in why for why in found.memory.why) and found.oom_kills == 1


def test_start_up_peak() -> None:
    made = ContainerHistory()
    made.started(T)
    made.observe(MinuteSample(T + 60, 2.0, 2000 * MIB))
    for n in range(2, 20_000):  # two weeks: the first day is all but forgotten
        made.observe(MinuteSample(T + 60 * n, 0.1 + n % 3 / 100, (400 + n % 7) * MIB))
    found = advice(made)
    assert found.memory.request == 2300 * MIB and "start-up peak of 2000 MiB" in found.memory.why[-1]
    assert found.cpu.request < 0.2 and any("starting takes 2 cores" in why for why in found.cpu.why)


def test_throttled_by_its_own_quota() -> None:
    made = history(cpu=0.45, periods=600, throttled=240)
    found = advice(made, current=Resources(0.5, None, 0.5, None))
    assert found.cpu.request == pytest.approx(0.7) and found.cpu.limit == found.cpu.request
    assert any("throttled by its own quota of 0.5 cores in 40% of its periods" in why for why in found.cpu.why)
    assert any("a quota in 40%" in why for why in advice(made).cpu.why)


def test_dropped_points_are_named() -> None:
    made = history()
    made.observe(MinuteSample(T, 1.0, 1.0))
    assert advice(made).cpu.why[-1] == "points dropped: 1 out of order"


def test_replicas_add_up_and_the_neediest_decides() -> None:
    small, large = history(cpu=0.1), history(cpu=1.0)
    assert advice(small, large).samples == 4000
    assert advice(small, large, method="walk").cpu.request == advice(large, method="walk").cpu.request


def test_cron_jobs_are_judged_over_their_runs() -> None:
    assert guess("ops", "backup-28543210-x2xkz") == guess("ops", "backup-28544650-bbbbb")
    assert guess("ops", "backup-28543210-x2xkz").kind == "CronJob"
    assert [guess("a", pod).kind for pod in ("web-7d4b9c6f5d-x2xkz", "db-0", "agent-x2xkz", "one")] == [
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "Pod",
    ]


def test_without_history_nothing_is_invented() -> None:
    found = advice(ContainerHistory())
    assert found.cpu.request is None and found.memory.request is None and math.isfinite(found.confidence_days)
