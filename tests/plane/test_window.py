"""Windows between readings, and what they say of each component."""

import math

import pytest

from carico_agent.plane.components import (
    API,
    executing,
    executing_seats,
    held_up,
    levels,
    load_of,
    needs,
    one_process,
    widths,
)
from carico_agent.plane.diagnosis import describe, diagnose
from carico_agent.plane.learn import MAX_BIN, LearnedCurve
from carico_agent.plane.processes import find, periods
from carico_agent.plane.queueing import Load
from carico_agent.plane.recommend import PlaneState, SeatRecommendation, recommend
from carico_agent.plane.window import Scrape, Window, between


def reading(time_s: float, cpu_s: float, gets: float, lists: float = 0, start: float = 1.0, **more: float) -> Scrape:
    totals = {
        "process_start_time_seconds": {(): start},
        "process_cpu_seconds_total": {(): cpu_s},
        "apiserver_request_duration_seconds_count": {
            ("GET", "pods", ""): gets,
            ("LIST", "pods", ""): lists,
            ("WATCH", "pods", ""): 7 * gets,
        },
        "apiserver_request_duration_seconds_sum": {("GET", "pods", ""): gets * 0.01, ("LIST", "pods", ""): lists * 0.5},
        "apiserver_flowcontrol_request_execution_seconds_sum": {
            ("workload-low", "service-accounts"): gets * 0.01 + lists * 0.5
        },
        "apiserver_flowcontrol_request_execution_seconds_count": {("workload-low", "service-accounts"): gets + lists},
        "apiserver_flowcontrol_rejected_requests_total": {("workload-low",): gets / 10},
        "apiserver_flowcontrol_request_concurrency_limit": {("system",): 88.0, ("workload-low",): 293.0},
        "apiserver_current_inqueue_requests": {(): 4.0},
    }
    return Scrape(time_s, {**totals, **{name: {(): value} for name, value in more.items()}})


def window(**more: float) -> Window:
    found = between(reading(0, 10, 100), reading(60, 40, 700, 60, **more))
    assert found is not None
    return found


def test_load_and_concurrency() -> None:
    assert load_of(API, window()) == Load(660, 30, 60)
    assert executing(window()) == pytest.approx((6 + 30) / 60)
    assert levels(window()) == {"system": 88, "workload-low": 293}
    assert load_of("etcd", window()) is None


def test_what_single_levels_need() -> None:
    seconds = {
        ("workload-low", "service-accounts"): 900.0,
        ("system", "system-nodes"): 240.0,
        ("exempt", "exempt"): 99.0,
    }
    limits = {("system",): 88.0, ("workload-low",): 293.0, ("catch-all",): 15.0}
    gauges = {
        "apiserver_flowcontrol_request_concurrency_limit": limits,
        "apiserver_flowcontrol_current_inqueue_requests": {("workload-low",): 70.0, ("system",): 2.0},
    }
    busy = Window(60, {"apiserver_flowcontrol_request_execution_seconds_sum": seconds}, gauges)
    assert needs(busy) == {"system": 12}  # 4 on average, 3 × 2 above it, and 2 that wait
    assert needs(Window(60)) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (reading(0, 10, 100), reading(60, 9, 200)),  # CPU time fell
        (reading(0, 10, 100), reading(60, 20, 90)),  # a count fell
        (reading(0, 10, 100), reading(60, 20, 200, start=2.0)),  # another process
        (reading(0, 10, 100), reading(0, 20, 200)),  # no time passed
    ],
)
def test_a_reset_is_unknown(old: Scrape, new: Scrape) -> None:
    assert between(old, new) is None


def test_one_process_is_reported() -> None:
    k3s = window(scheduler_schedule_attempts_total=5.0)
    assert one_process(k3s)
    assert not one_process(window())
    seen = diagnose({API: k3s}, {}, {}, 4, "none", [])
    assert "k3s" in describe(seen)


def test_diagnosis() -> None:
    seen = diagnose(
        {API: window(), "etcd": None}, {"kube-scheduler": "refused"}, {"etcd": 0.2}, 0.6, "not busy", [(0, 0.1)]
    )
    api, etcd, scheduler = seen.components
    assert (api.arrivals_per_s, api.served_per_core_s, api.cores, api.waiting, api.seats) == (11, 22, 0.5, 4, 381)
    assert (etcd.throttled_ratio, scheduler.missing) == (0.2, "refused")
    assert [(one.what, round(one.share, 3)) for one in seen.verbs] == [("LIST pods", 0.833), ("GET pods", 0.167)]
    assert seen.rejected_per_s == {"workload-low": 1.0}
    assert seen.clients[0].what == "service-accounts"
    assert "LIST pods takes 83%" in seen.remedy
    text = describe(seen)
    assert "kube-apiserver" in text and "refused" in text and text.endswith(f"remedy: {seen.remedy}")


def test_an_idle_server_is_idle() -> None:
    """The first window is the only point of the curve and its own peak: 0.05 of 8 cores were "used 100 %", and the LIST
    remedy came below "nothing competes"."""
    idle = between(reading(0, 10, 0), reading(60, 13, 6, 60))
    learned = LearnedCurve()
    learned.add(60, executing(idle), 0.05)  # type: ignore[arg-type]
    seen = diagnose({API: idle}, {}, {}, 8.0, "nothing competes", learned.points(), peak=learned.peak())
    assert seen.components[0].utilisation == pytest.approx(0.05 / 8)
    assert "LIST" not in seen.remedy
    assert f"{seen.components[0].utilisation:.0%}" == "1%"


def test_a_peak_is_known_once_more_concurrency_brings_no_more() -> None:
    learned = LearnedCurve()
    for time_s, (x, cores) in enumerate([(0.01, 0.02), (0.5, 0.05), (4, 1.4), (10, 1.9)]):
        learned.add(60.0 * time_s, x, cores)
        assert learned.peak() is None, "every window so far used more than the one before"
    for time_s, x in enumerate([20, 40, 80]):
        learned.add(300.0 + 60 * time_s, x, 1.92)
    assert learned.peak() == pytest.approx(1.92, abs=0.02)
    seen = diagnose({API: window()}, {}, {}, 2.0, "none", learned.points(), peak=learned.peak())
    assert seen.components[0].utilisation == pytest.approx(0.5 / 1.92, rel=0.02)


def test_slow_requests_are_no_peak() -> None:
    """A webhook that takes 2 s: 20 requests at once use as little CPU as 10."""
    learned = LearnedCurve()
    for time_s, x in enumerate([1, 10, 20, 40]):
        learned.add(60.0 * time_s, x, 0.1)
    seen = diagnose({API: window()}, {}, {}, 8.0, "none", learned.points(), peak=learned.peak())
    assert seen.components[0].utilisation == pytest.approx(0.5 / 8)


def test_seats_are_not_requests() -> None:
    """A LIST of many objects takes several seats: 2 requests executed, and 8 seats were taken."""
    name = "apiserver_flowcontrol_priority_level_seat_utilization"
    key = ("workload-low", "executing")
    counted = {
        "apiserver_flowcontrol_request_execution_seconds_sum": {
            ("workload-low", "service-accounts"): 120.0,
            ("system", "system-nodes"): 60.0,
        },
        f"{name}_sum": {key: 60e9 * 8 / 245},
        f"{name}_count": {key: 60e9},
    }
    gauges = {
        "apiserver_flowcontrol_current_limit_seats": {("workload-low",): 245.0},
        "apiserver_flowcontrol_nominal_limit_seats": {("workload-low",): 245.0, ("system",): 74.0},
    }
    seen = Window(60, counted, gauges)
    assert executing(seen) == pytest.approx(3)
    assert executing_seats(seen) == {"workload-low": pytest.approx(8), "system": 1}
    assert widths(seen) == {"workload-low": pytest.approx(4), "system": 1}


@pytest.mark.parametrize(
    ("waited_s", "waiting", "rejected", "says"),
    [
        (0.0, 0.0, 0.0, ""),
        (30.0, 0.0, 0.0, ""),
        (600.0, 0.0, 0.0, "10 requests wait in level workload-low, and it rejected 0"),
        (0.0, 12.0, 0.0, "12 requests wait in level workload-low, and it rejected 0"),
        (0.0, 0.0, 3.0, "0 requests wait in level workload-low, and it rejected 3"),
    ],
)
def test_which_level_is_held_up(waited_s: float, waiting: float, rejected: float, says: str) -> None:
    level = ("workload-low",)
    counted = {
        "apiserver_flowcontrol_request_wait_duration_seconds_sum": {level: waited_s},
        "apiserver_flowcontrol_rejected_requests_total": {level: rejected},
    }
    gauges = {
        "apiserver_flowcontrol_nominal_limit_seats": {level: 245.0},
        "apiserver_flowcontrol_current_inqueue_requests": {level: waiting},
    }
    assert held_up(Window(60, counted, gauges)) == says


WISH = SeatRecommendation(12, 3, 1.5, 8.0, 0.0005, True)


@pytest.mark.parametrize(
    ("throttled", "found", "says"),
    [
        ({API: 0.8}, WISH, "raise or remove the CPU limit of kube-apiserver"),
        ({}, WISH, "hold seats back: 12 seats keep 1.50 cores busy, 381 are allowed; level workload-low"),
        ({}, "not busy", "level workload-low rejects 1.0 requests per second while the CPU has room"),
    ],
)
def test_one_remedy(throttled, found, says: str) -> None:
    quiet = between(reading(0, 10, 100), reading(60, 40, 700))
    assert diagnose({API: quiet}, {}, throttled, 2.0, found, []).remedy.startswith(says)


def test_nothing_to_say_without_metrics() -> None:
    seen = diagnose({}, {API: "no answer"}, {}, 2.0, "unknown", [])
    assert seen.remedy == "not known: no answer"


# ---- what follows from it


def situation(**more: object) -> PlaneState:
    learned = LearnedCurve()
    for time_s, (x, cores) in enumerate([(0, 0.05), (1, 0.6), (4, 1.4), (10, 1.7), (40, 1.72), (200, 1.74)]):
        learned.add(60.0 * time_s, x, cores)
    values = {
        "load": Load(6000, 72, 60),
        "curve": learned.curve(),
        "busy_cores": 1.7,
        "cores": 2.0,
        "needs": {"system": 9},
        **more,
    }
    return PlaneState(**values)  # type: ignore[arg-type]


def test_a_flat_curve_does_not_ask_for_more_seats() -> None:
    found = recommend(situation(), 0.999, 0.7, min_seats=1)
    assert isinstance(found, SeatRecommendation)
    assert found.seats == 5  # the first with 0.95 × 1.5 cores: others use 0.5 of the 2
    assert found.needs == {"system": 9}
    assert found.steady


def test_min_seats() -> None:
    found = recommend(situation(), 0.999, 0.7, min_seats=16)
    assert isinstance(found, SeatRecommendation) and found.seats == 16


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"load": None}, "unknown"),
        ({"load": Load(0, 0.1, 60)}, "no requests"),
        ({"curve": None}, "curve is not known"),
        ({"busy_cores": 1.0}, "nothing competes"),
        ({"load": Load(10, 0, 60)}, "no CPU time"),
        ({"load": Load(math.nan, 1, 60)}, "unknown"),
    ],
)
def test_no_recommendation_and_why(more, why: str) -> None:
    found = recommend(situation(**more), 0.999, 0.7, 1)
    assert isinstance(found, str) and why in found


# ---- learning


def test_learning_forgets_and_stays_bounded() -> None:
    learned = LearnedCurve()
    learned.add(0, 10, 1.0)
    learned.add(6 * 3600.0, 10, 2.0)  # after a half-life the old one counts half
    assert learned.points() == [(10, pytest.approx(5 / 3))]
    for n in range(20_000):
        learned.add(n, 1.001**n, 1.0)
    assert len(learned) <= MAX_BIN + 1
    for bad in (math.nan, math.inf, -1.0):
        learned.add(0, bad, 1.0)
        learned.add(0, 1.0, bad)
    assert all(map(math.isfinite, (value for point in learned.points() for value in point)))


def test_old_bins_expire() -> None:
    learned = LearnedCurve()
    learned.add(0, 40, 1.9)
    learned.add(23 * 3600.0, 1, 0.5)
    assert len(learned) == 2
    learned.add(25 * 3600.0, 1, 0.5)
    assert learned.points() == [(1, 0.5)]


def test_one_window_of_many_requests_does_not_speak_for_few() -> None:
    """40 requests on 1.8 cores: that one request uses 1.8 cores, too, followed from a curve without a beginning, and
    one seat was recommended."""
    learned = LearnedCurve()
    learned.add(0, 40, 1.8)
    found = recommend(situation(curve=learned.curve(), busy_cores=1.8), 0.999, 0.7, 1)
    assert isinstance(found, SeatRecommendation) and found.seats == 30


def test_one_lucky_window_is_smoothed() -> None:
    learned = LearnedCurve()
    for n in range(40):
        for x, cores in [(0, 0.05), (1, 0.4), (1.1, 0.4), (8, 0.6), (9, 0.6), (10, 0.6)]:
            learned.add(n, x, cores)
    learned.add(41, 1.3, 0.9)
    curve = learned.curve()
    assert curve is not None and curve.cores(0) == pytest.approx(0.05)
    assert curve.peak()[0] >= 8 and curve.peak()[1] == pytest.approx(0.6)


def test_learned_survives_a_restart() -> None:
    old, new = LearnedCurve(), LearnedCurve()
    for x, cores in [(0, 0.1), (3, 1.0), (9, 2.0)]:
        old.add(100, x, cores)
    new.load(old.save(160), 1000)
    assert new.points() == old.points()
    for damaged in (None, {}, [1], [[1, 2]], [["a", 1, 1, 1]], [[1, math.nan, 1, 1]]):
        new.load(damaged, 0)
    assert new.points() == old.points()


# ---- processes of this machine


def test_components_and_their_throttling(tmp_path) -> None:
    for pid, name, line in [("7", "etcd", "0::/sys.slice/etcd"), ("9", "kube-controller", "3:cpu,cpuacct:/kcm")]:
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "comm").write_text(name + "\n")
        (tmp_path / "proc" / pid / "cgroup").write_text(f"5:memory:/x\n{line}\n")
    for folder in ("sys.slice/etcd", "cpu/kcm"):
        (tmp_path / "sys/fs/cgroup" / folder).mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup" / folder / "cpu.stat").write_text("usage_usec 1\nnr_periods 10\nnr_throttled 4\n")
    assert find(str(tmp_path)) == {"etcd": 7, "kube-controller-manager": 9}
    assert [periods(pid, str(tmp_path)).throttled for pid in (7, 9)] == [4, 4]  # type: ignore[union-attr]
    assert periods(8, str(tmp_path)) is None
