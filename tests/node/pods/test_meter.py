"""The staggered reader: who is read when, however many there are; with fake counters and with fake trees."""

from dataclasses import replace
from itertools import pairwise
from math import nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.demand import CounterReading, Demand
from carico_agent.node.pods.meter import OPENING, PERIOD_S, PodMeters, add_up, open_cgroups
from carico_agent.node.pods.pods import Pod

from .test_counter_files import FakePod


class FakeFiles:
    """A Pod that always uses half a core; raises what it is given."""

    def __init__(self, log, key):
        self.log, self.key, self.error, self.closed = log, key, None, False

    def sleeps_on(self):
        return False

    def read(self, now_s):
        if self.error:
            raise self.error
        self.log.append((now_s, self.key))
        return CounterReading(now_s, int(now_s * 500_000), 0, 0, memory_bytes=1e6)

    def close(self):
        self.closed = True


class Fake:
    def __init__(self, **more):
        self.log, self.files = [], {}
        self.meters = PodMeters(self._open, **{"stopwatch": lambda: 0.0} | more)

    def _open(self, pod):
        opened = FakeFiles(self.log, pod.key)
        self.files.setdefault(pod.key, []).append(opened)
        return [opened]

    def run(self, pods, start_s, seconds, step_s=0.1):
        found = []
        for tick in range(round(seconds / step_s)):
            before = len(self.log)
            found.append(self.meters.tick(start_s + tick * step_s, pods))
            self.most = max(getattr(self, "most", 0), len(self.log) - before)
        return found


def pods_named(*keys):
    return {key: Pod(key, key, "n", inode=1, cgroup=f"/{key}", workload=f"n/{key}") for key in keys}


@pytest.mark.parametrize("count", [1, 7, 110, 500])
def test_every_pod_is_read_every_period_and_never_all_in_one_tick(count):
    fake, pods = Fake(), pods_named(*map(str, range(count)))
    fake.run(pods, 0.0, 60.0)
    assert fake.most <= 2 + 1.5 * count * 0.1 / PERIOD_S
    times = {key: [t for t, read in fake.log if read == key and t >= 40.0] for key in pods}
    gaps = [b - a for seen in times.values() for a, b in pairwise(seen)]
    assert len(times) == count and min(map(len, times.values())) >= 2
    assert max(gaps) <= PERIOD_S * 1.1 + 0.1 and min(gaps) >= PERIOD_S * 0.9


def test_readings_that_take_long_make_ticks_rarer_not_longer():
    fake, pods = Fake(stopwatch=lambda: len(fake.log) * 0.001), pods_named(*map(str, range(110)))
    fake.run(pods, 0.0, 60.0)
    assert fake.most == 1
    assert {key for t, key in fake.log if t >= 40.0} == set(pods)


def test_from_a_worker_at_one_hertz():
    fake, pods = Fake(), pods_named(*map(str, range(110)))
    found = fake.run(pods, 0.0, 30.0, step_s=1.0)
    assert fake.most <= 2 + 1.5 * 110 / PERIOD_S
    assert {one.pod.key for tick in found for one in tick} == set(pods)


def test_a_new_pod_is_measured_soon():
    fake, pods = Fake(), pods_named(*map(str, range(110)))
    fake.run(pods, 0.0, 20.0)
    fake.run({**pods, **pods_named("new")}, 20.0, 10.0)
    seen = [round(t - 20.0, 1) for t, key in fake.log if key == "new"]
    assert seen[0] <= 0.5 and seen[1] <= 1.7 and seen[2] <= 2.9 and len(seen) == 5


def test_a_new_pod_that_sleeps_is_not_looked_at_more_often_than_others(tmp_path):
    fake = FakePod(tmp_path, "v2")
    pod = Pod("k", "k", "n", cgroup="/pod", inode=fake.group.inode, workload="n/k")
    meters, looks = PodMeters(open_cgroups(Locator(tmp_path))), []
    meters.tick(0.0, {})
    for tick in range(1, 301):
        meters.tick(tick * 0.1, {"k": pod} if tick == 1 else meters._pods)
        looks.append(meters._meters["k"].readings)
    assert looks[-1] - looks[99] == pytest.approx(20 / PERIOD_S, abs=1)
    meters.close()


def test_opening_counts_as_several_readings():
    fake, pods = Fake(), pods_named(*map(str, range(60)))
    fake.meters.tick(0.0, {})
    before = len(fake.log)
    fake.meters.tick(0.1, pods)
    assert 1 <= len(fake.log) - before <= 1 + (1 + 1.5 * 60 * 0.1 / PERIOD_S) / OPENING


def test_what_is_read():
    fake, pods = Fake(), pods_named("a")
    (found,) = [one for tick in fake.run(pods, 0.0, 2.5) for one in tick]
    assert found.pod is pods["a"]
    ((before, now),) = found.counters
    assert now.t - before.t == pytest.approx(2.0)
    assert found.demand().cpu_cores == pytest.approx(0.5)


def test_a_pod_that_goes_is_closed_and_not_read_any_more():
    fake, pods = Fake(), pods_named("a", "b")
    fake.run(pods, 0.0, 10.0)
    fake.run(pods_named("b"), 10.0, 0.2)
    assert fake.files["a"][0].closed
    count = len(fake.log)
    fake.run(pods_named("b"), 10.2, 20.0)
    assert {key for _, key in fake.log[count:]} == {"b"}


def test_a_pod_that_comes_back_is_not_read_twice_as_often():
    fake, pods = Fake(), pods_named("a", "b")
    for turn in range(4):
        fake.run(pods if turn % 2 == 0 else pods_named("b"), turn * 3.0, 3.0)
    before = len(fake.log)
    fake.run(pods, 12.0, 50.0)
    assert sum(key == "a" for _, key in fake.log[before:]) <= 50 / PERIOD_S + 4


def test_another_group_under_the_same_key_is_opened_anew():
    fake, pods = Fake(), pods_named("a")
    fake.run(pods, 0.0, 3.0)
    fake.run({"a": replace(pods["a"], inode=2)}, 3.0, 6.0)
    assert [one.closed for one in fake.files["a"]] == [True, False]
    fake.run({"a": replace(pods["a"], inode=2, labels={"x": "y"})}, 9.0, 6.0)
    assert len(fake.files["a"]) == 2


def test_a_group_that_is_gone_is_no_failure_and_others_are():
    fake, pods = Fake(), pods_named("a", "b")
    fake.run(pods, 0.0, 8.0)
    fake.files["a"][0].error = OSError(19, "No such device")
    fake.files["b"][0].error = ValueError("not a number")
    fake.run(pods, 8.0, 5.0)
    assert fake.meters.failed == 1
    assert fake.files["a"][0].closed
    fake.run(pods, 13.0, 6.0)
    assert len(fake.files["a"]) == 2  # it is looked for again


def test_close():
    fake, pods = Fake(), pods_named("a")
    fake.run(pods, 0.0, 8.0)
    fake.meters.close()
    assert fake.files["a"][0].closed


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sets(st.integers(0, 30), max_size=30), st.floats(0.01, 4.0)), max_size=60))
def test_any_coming_and_going(steps):
    fake, now_s = Fake(), 0.0
    for keys, elapsed_s in steps:
        now_s += elapsed_s
        pods = pods_named(*map(str, keys))
        assert {one.pod.key for one in fake.meters.tick(now_s, pods)} <= pods.keys()
        opened = {key for key, all_files in fake.files.items() if not all_files[-1].closed}
        assert opened <= pods.keys()
    assert len(fake.meters._turns._due) <= 65 + 4 * 30


@pytest.mark.parametrize("workload", ["v2", "v1", "hybrid"])
def test_a_pod_that_sleeps_is_read_again_when_it_wakes_and_the_sleep_does_not_count(tmp_path, workload):
    fake = FakePod(tmp_path, workload)
    pods = {"k": Pod("k", "k", "n", cgroup="/pod", inode=fake.group.inode, workload="n/k")}
    meters, found = PodMeters(open_cgroups(Locator(tmp_path))), []
    fake.run(1_000_000)
    for second in range(60):
        found += meters.tick(float(second), pods)
    assert len(found) <= 2  # it is not looked through each time
    assert found[-1].demand().cpu_cores == 0.0 and found[-1].demand().memory_bytes == 3096.0
    last_s = round(meters._meters["k"]._slept_s)
    fake.run(1_000_000 + 2_500_000)
    (woken,) = [one for second in range(60, 66) for one in meters.tick(float(second), pods)]
    ((before, now),) = woken.counters
    assert before.t >= last_s and now.t - before.t == PERIOD_S
    assert woken.demand().cpu_cores == pytest.approx(0.5)
    meters.close()


@pytest.mark.parametrize("workload", ["v2", "v1", "hybrid"])
def test_on_a_tree(tmp_path, workload):
    fake = FakePod(tmp_path, workload)
    pod = Pod("k", "k", "n", cgroup="/pod", inode=fake.group.inode, workload="n/k")
    meters = PodMeters(open_cgroups(Locator(tmp_path)))
    pods = {"k": pod, "nowhere": Pod("nowhere", "x", "n")}
    assert meters.tick(0.0, pods) == []
    found = []
    for tick in range(1, 30):
        fake.run(1000 + tick * 50_000)  # half a core at 10 Hz
        found += meters.tick(tick * 0.1, pods)
    assert found[-1].demand().cpu_cores == pytest.approx(0.5, abs=0.01)
    assert found[-1].demand().memory_bytes == 3096.0
    meters.close()


def test_groups_of_one_pod_are_added_up():
    one, other = Demand(1.0, 0.5, 0.0, 100.0, 0.7, 10.0), Demand(0.5, 0.5, 0.1, 50.0, 0.7, nan)
    total = add_up([one, other])
    assert (total.cpu_cores, total.memory_bytes, total.io_ratio) == (1.5, 150.0, 1.0)
    assert total.io_bytes_per_s != total.io_bytes_per_s
    assert add_up([one]) is one
