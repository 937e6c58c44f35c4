"""One Pod's readings: when it has shown itself, and how its mean follows."""

from math import inf, nan, pi, sin

import pytest

from carico_agent.core.pods import PodReadings, PodSample

UNKNOWN = (nan, nan)


def read(pod: PodReadings, values: list[float], cost: tuple[float, float] = UNKNOWN, ramp_s: float = 6.0) -> list[bool]:
    return [pod.read(5.0 * i, (x, 0.01), ramp_s, cost) for i, x in enumerate(values)]


def test_a_pod_older_than_our_knowledge_has_shown_itself_at_once() -> None:
    assert read(PodReadings("web", -inf, 2), [0.1]) == [True]


def test_a_pod_that_rises_has_not_shown_itself() -> None:
    pod = PodReadings("web", 0.0, 2)
    assert read(pod, [0.02, 0.04, 0.06, 0.08, 0.10, 0.10]) == [False] * 5 + [True]
    assert pod.calm_age_s == 20.0


def test_a_young_pod_waits_for_the_ramp_of_its_workload_unless_it_has_arrived() -> None:
    assert not any(read(PodReadings("web", 0.0, 2), [0.001] * 4, (0.1, 0.01), ramp_s=30.0))
    assert any(read(PodReadings("web", 0.0, 2), [0.09] * 4, (0.1, 0.01), ramp_s=30.0))


def test_noise_is_averaged_and_a_lasting_change_is_followed() -> None:
    pod = PodReadings("web", -inf, 2)
    read(pod, [0.1, 0.105, 0.095] * 10)
    assert pod.mean[0] == pytest.approx(0.1, rel=0.03)
    read(pod, [0.15] * 5)
    assert pod.mean[0] == pytest.approx(0.15)
    assert pod.now[0] == pytest.approx(0.15)
    read(pod, [0.4])
    assert pod.mean[0] == pytest.approx(0.4)  # twice as much is believed at once


def test_a_wave_is_averaged() -> None:
    pod = PodReadings("web", -inf, 2)
    means = []
    for i in range(60):
        pod.read(5.0 * i, (0.1 * (1 + 0.35 * sin(2 * pi * 5.0 * i / 60)), 0.01), 6.0, UNKNOWN)
        means.append(pod.mean[0])
    assert max(abs(mean - 0.1) for mean in means[12:]) < 0.02
    assert pod.now[0] == pytest.approx(0.1 * (1 + 0.35 * sin(2 * pi * 5.0 * 59 / 60)), rel=0.16)


def test_a_pod_that_still_rises_slowly_starts_its_mean_anew() -> None:
    pod = PodReadings("java", 0.0, 2)
    ramp = [0.1 * min(1.0, t / 60) for t in range(5, 125, 5)]
    shown = [i for i, news in enumerate(read(pod, ramp)) if news]
    assert shown[0] <= 8  # near the end of a ramp of a minute two readings hardly differ
    assert len(shown) > 1
    assert pod.mean[0] == pytest.approx(0.1, rel=0.03)
    assert 45 <= pod.calm_age_s <= 70
    assert pod.rise is None


def test_a_reading_that_is_missing_does_not_end_a_slow_rise() -> None:
    pod = PodReadings("java", 0.0, 2)
    read(pod, [nan if t == 60 else 0.2 * min(1.0, t / 90) for t in range(0, 150, 5)])
    assert pod.calm_age_s > 60
    assert pod.mean[0] == pytest.approx(0.2, rel=0.03)


def test_a_pod_that_was_not_read_yet_has_not_shown_itself() -> None:
    pod = PodReadings("web", 0.0, 2)
    news = [
        pod.read(9.0 * i, usage, 6.0, (0.2, 0.02)) for i, usage in enumerate([(nan, nan), (0.02, 0.02), (0.2, 0.02)])
    ]
    assert news == [False, False, False]


def test_a_pod_that_wakes_did_not_rise() -> None:
    pod = PodReadings("job", 0.0, 2)
    assert sum(read(pod, [0.0] * 4 + [0.1] * 8)) == 1
    assert pod.calm_age_s == 0
    assert pod.mean[0] == pytest.approx(0.1)


def test_half_a_core_that_ramps_up_on_a_large_node_is_seen_to_rise() -> None:
    pod = PodReadings("rpc", 0.0, 2, (0.016 / 64, 0.002))
    news = read(pod, [0.0078 * min(1.0, t / 30) for t in range(0, 60, 5)])
    assert not any(news[:6])
    assert pod.mean[0] == pytest.approx(0.0078, rel=0.05)


def test_a_pod_that_wakes_and_takes_its_memory_does_not_grow() -> None:
    pod = PodReadings("job", 0.0, 2)
    usage = [(0.001, 0.018)] * 6 + [(0.03, 0.018), (0.06, 0.027)] + [(0.06, 0.03)] * 40
    for i, reading in enumerate(usage):
        pod.read(5.0 * i, reading, 6.0, UNKNOWN)
    assert pod.watched_s > 100
    assert pod.mean[1] - pod.first[1] < 0.001


def test_an_unknown_reading_keeps_what_was_known() -> None:
    pod = PodReadings("web", -inf, 2)
    read(pod, [0.1, 0.1])
    pod.read(20.0, (nan, nan), 6.0, UNKNOWN)
    assert pod.now == [pytest.approx(0.1), pytest.approx(0.01)]


@pytest.mark.parametrize("usage", [(0.1,), (-0.1, 0.0), (inf, 0.0)])
def test_a_bad_sample_names_its_pod(usage: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="Pod a1"):
        PodSample("a1", "web", usage).check(2)
