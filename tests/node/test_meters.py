"""Pods are read in turns, and the model gets samples of all of them."""

from dataclasses import replace
from math import inf

import pytest

from carico_agent.node.measurements import Measurements, PodTurn
from carico_agent.node.pods.demand import CounterReading
from carico_agent.node.pods.meter import PodMeters, PodReading
from carico_agent.node.pods.pods import Pod
from carico_agent.node.sampling.thread import Meters

RESOURCES = ("cpu", "memory")


class Counters:
    """A Pod that takes half a core and is stopped by its quota for a tenth of the time."""

    def __init__(self, read_at_s: list[float]) -> None:
        self._read_at_s = read_at_s

    def sleeps_on(self) -> bool:
        return False

    def read(self, now_s: float) -> CounterReading:
        self._read_at_s.append(now_s)
        return CounterReading(now_s, round(5e5 * now_s), 0, round(1e5 * now_s), memory_bytes=1e6)

    def close(self) -> None:
        return


class Bench:
    def __init__(self, cpu_s_per_look: float = 0.0) -> None:
        self.read_at_s: list[float] = []
        self.spent_s = 0.0
        self._cost_s = cpu_s_per_look
        pod_meters = PodMeters(lambda pod: [Counters(self.read_at_s)], stopwatch=self._stopwatch)
        self.meters, self.measurements = Meters(pod_meters), Measurements(RESOURCES, 2, 1e9)

    def _stopwatch(self) -> float:
        self.spent_s += self._cost_s
        return self.spent_s

    def tick(self, now_s: float, pods: dict[str, Pod], due: bool):  # type: ignore[no-untyped-def]
        return self.measurements.take(self.meters.tick(now_s, pods, due))

    def run(self, begin: int, ticks: int, pods: dict[str, Pod]):  # type: ignore[no-untyped-def]
        """The last measurements in `ticks` of 0.1 s; an update is due in every tenth."""
        found = None
        for tick in range(begin, begin + ticks):
            now_s = round(0.1 * tick, 1)
            due = tick % 10 == 0
            if due or now_s >= self.meters.turn_s or pods is not self.meters.pods:
                found = self.tick(now_s, pods, due) or found
        return found


def pods(count: int, counted: bool = True) -> dict[str, Pod]:
    return {f"p{n}": Pod(f"p{n}", f"p{n}", "d", inode=n + 1, workload="d/p", counts=counted) for n in range(count)}


def test_pods_are_read_in_every_third_tick_and_each_in_its_period() -> None:
    bench, table = Bench(), pods(50)
    bench.run(1, 300, table)
    began = len(bench.read_at_s)
    bench.run(301, 100, table)
    ticks = sorted(set(bench.read_at_s[began:]))
    assert len(bench.read_at_s) - began == pytest.approx(100, abs=12)  # 50 Pods, twice in 10 s
    assert len(ticks) <= 34
    assert not {t for t in ticks if round(10 * t) % 10 == 0}  # a tick with an update has enough to do


def test_what_was_not_read_in_time_is_read_in_the_next_tick() -> None:
    bench, table = Bench(cpu_s_per_look=0.0002), pods(50)  # two Pods use up a tick
    bench.run(1, 400, table)
    began = len(bench.read_at_s)
    bench.run(401, 100, table)
    assert len(set(bench.read_at_s[began:])) >= 45
    assert len(bench.read_at_s) - began >= 80


def test_where_every_tick_is_an_update_pods_are_read_all_the_same() -> None:
    bench, table = Bench(), pods(5)
    for second in range(30):
        bench.meters.tick(float(second), table, True)
    assert len(bench.read_at_s) >= 25


def test_measurements_are_those_of_all_pods_that_count() -> None:
    bench, table = Bench(), {**pods(3), "own": Pod("own", "own", "d", inode=9, workload="d/own", counts=False)}
    found = bench.run(1, 200, table)
    assert [sample.uid for sample in found.samples] == ["p0", "p1", "p2"]
    assert found.used_cores == pytest.approx(1.5) and found.throttled_ratio == pytest.approx(0.3)
    assert found.samples[0].usage == pytest.approx((0.125, 0.001))


def test_samples_of_pods_that_stay_are_the_same_objects() -> None:
    bench, table = Bench(), pods(4)
    before = {sample.uid: sample for sample in bench.run(1, 200, table).samples}
    fewer = {key: pod for key, pod in table.items() if key != "p3"}
    read = len(bench.read_at_s)
    found = bench.tick(20.05, fewer, False)
    assert found is not None and len(found.samples) == 3
    again = [sample for sample in found.samples if sample is before[sample.uid]]
    assert len(again) >= 3 - (len(bench.read_at_s) - read)
    assert found.used_cores == pytest.approx(1.5)


def test_without_pods_nothing_is_read_and_the_node_has_none() -> None:
    bench = Bench()
    bench.run(1, 50, pods(2))
    found = bench.tick(5.1, {}, True)
    assert found is not None and found.samples == () and found.used_cores == 0
    assert bench.meters.turn_s == inf


def test_pods_that_cannot_be_measured_are_not_said_to_use_nothing() -> None:
    turn = Meters(PodMeters(lambda pod: ())).tick(1.0, pods(2), True)
    assert Measurements(RESOURCES, 2, 1e9).take(turn) is None


def read(pod: Pod) -> PodReading:
    """It took two cores and keeps 512 bytes."""
    before, now = CounterReading(0.0, 0, 0, 0), CounterReading(1.0, 2_000_000, 0, 0, memory_bytes=512.0)
    return PodReading(pod, [(before, now)])


def test_samples_without_a_known_memory() -> None:
    pod = Pod("a", "x", "n", workload="k", per_node=True)
    found = Measurements(("io", "cpu", "memory"), 4, 0.0).take(PodTurn({"a": pod}, [read(pod)], False))
    assert found is not None
    (sample,) = found.samples
    assert sample.usage[1] == 0.25 and sample.usage[2] != sample.usage[2] and sample.per_node


def test_a_pod_that_was_not_measured_yet_is_unknown_and_one_that_does_not_count_is_left_out() -> None:
    old, new = Pod("old", "o", "n", workload="k"), Pod("new", "x", "n", workload="k")
    skipped = Pod("skipped", "y", "n", counts=False)
    table, measurements = {"old": old, "new": new, "skipped": skipped}, Measurements((*RESOURCES, "network"), 4, 4096.0)
    found = measurements.take(PodTurn(table, [read(old), read(skipped)], False))
    assert found is not None and found.used_cores == pytest.approx(2.0)
    known, unknown = found.samples
    assert (known.uid, *known.usage[:2]) == ("old", 0.25, 0.125) and known.usage[2] != known.usage[2]
    assert (unknown.uid, unknown.workload) == ("new", "k") and all(value != value for value in unknown.usage)
    assert measurements.take(PodTurn(table, [], False)) is None
    again = measurements.take(PodTurn(table, [read(new)], True))
    assert again is not None and again.samples[0] is known  # not read again: the same object again
    assert again.samples[1].usage[:2] == (0.25, 0.125)


def test_a_pod_whose_labels_change_is_of_its_new_workload_at_once() -> None:
    pod, measurements = Pod("a", "x", "n", workload="k"), Measurements(RESOURCES, 4, 4096.0)
    measurements.take(PodTurn({"a": pod}, [read(pod)], True))
    found = measurements.take(PodTurn({"a": replace(pod, workload="other")}, [], False))
    assert found is not None
    assert [(sample.workload, sample.usage) for sample in found.samples] == [("other", (0.25, 0.125))]
