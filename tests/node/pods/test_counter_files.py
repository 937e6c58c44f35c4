"""A Pod's files on v2, v1 and hybrid trees: what is read, and what is left alone."""

import errno
import os
from math import inf, isnan

import pytest

from carico_agent.node.pods import counter_files
from carico_agent.node.pods.cgroup import parse_inactive_file, parse_io_bytes, parse_quota
from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.counter_files import CounterFiles
from carico_agent.node.pods.demand import ThreadTimes

from .trees import FakeRoot

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"


class FakePod:
    """One Pod group with a container in it, whose numbers can be set."""

    def __init__(self, root, workload):
        self.fake = FakeRoot(root, workload)
        self.workload = workload
        for path in ("/pod", "/pod/c1"):
            self.fake.group(path)
        self.set("memory", "memory.stat", "cache 9\ninactive_file 1000\n", v1="cache 9\ntotal_inactive_file 1000\n")
        self.group = Locator(root).at("/pod")
        assert self.group is not None

    def folder(self, controller, path="/pod"):
        return self.fake.mounts["" if self.workload == "v2" else controller] / path.lstrip("/")

    def set(self, controller, name, text, v1=None, path="/pod"):
        (self.folder(controller, path) / name).write_text(text if self.workload == "v2" or v1 is None else v1)

    def run(self, usage_usec, pressure_usec=70, throttled_usec=99, container_usec=99):
        for path, throttled in (("/pod", throttled_usec), ("/pod/c1", container_usec)):
            periods = "nr_periods 10\nnr_throttled 4\n"
            v1 = f"{periods}throttled_time {throttled * 1000}\n"
            self.set("cpu", "cpu.stat", f"usage_usec {usage_usec}\n{periods}throttled_usec {throttled}\n", v1, path)
        if self.workload != "v2":
            self.set("cpuacct", "cpuacct.usage", "", f"{usage_usec * 1000}\n")
        if "" in self.fake.mounts:
            (self.fake.mounts[""] / "pod/cpu.pressure").write_text(PRESSURE.format(pressure_usec))

    def quota(self, cores, path="/pod"):
        if self.workload == "v2":
            self.set("cpu", "cpu.max", f"{int(cores * 100_000)} 100000\n" if cores else "max 100000\n", path=path)
        else:
            self.set("cpu", "cpu.cfs_quota_us", "", f"{int(cores * 100_000) if cores else -1}\n", path=path)
            self.set("cpu", "cpu.cfs_period_us", "", "100000\n", path=path)


@pytest.fixture(params=["v2", "v1", "hybrid"])
def pod(request, tmp_path):
    return FakePod(tmp_path, request.param)


@pytest.fixture
def files(pod):
    opened = CounterFiles(pod.group, str(pod.fake.root / "proc"))
    yield opened
    opened.close()


def test_the_first_reading_has_everything(pod, files):
    found = files.read(1.0)
    pressure = None if pod.workload == "v1" else 70
    assert (found.t, found.cpu_usec, found.pressure_usec, found.throttled_usec) == (1.0, 1000, pressure, 198)
    assert (found.memory_bytes, found.quota_cores, found.io_bytes) == (3096.0, inf, None)


def test_a_pod_that_did_not_run_is_not_asked_how_long_it_waited(pod, files, monkeypatch):
    files.read(1.0)
    monkeypatch.setattr(files._group, "stall_usec", None)  # would raise
    found = files.read(6.0)
    assert (found.cpu_usec, found.throttled_usec) == (1000, 198)
    assert found.threads is None


def test_throttling_is_read_only_while_the_pod_waits(pod, files):
    if pod.workload == "v1":
        pytest.skip("a v1 tree has no pressure: throttling is read whenever the Pod ran")
    files.read(1.0)
    pod.run(500_000, pressure_usec=80, throttled_usec=5000)
    assert files.read(6.0).throttled_usec == 198
    pod.run(900_000, pressure_usec=4_000_000, throttled_usec=5000, container_usec=3_000_000)
    assert files.read(11.0).throttled_usec == 3_005_000


def test_quota_of_the_pod(pod, files):
    pod.quota(0.2)
    files.read(1.0)
    pod.run(1_000_000, pressure_usec=4_000_000, throttled_usec=3_000_000)
    assert files.read(6.0).quota_cores == pytest.approx(0.2)


def test_a_quota_that_does_not_throttle_because_the_node_is_crowded(pod, files):
    pod.quota(0.2)
    files.read(1.0)
    pod.run(450_000, pressure_usec=4_000_000)
    found = files.read(6.0)
    assert (found.throttled_usec, found.quota_cores) == (198, pytest.approx(0.2))


def test_a_quota_that_came_later(pod, files):
    files.read(1.0)
    pod.quota(0.2)
    pod.run(1_000_000, pressure_usec=4_000_000, throttled_usec=3_000_000)
    assert files.read(6.0).quota_cores == pytest.approx(0.2)


def test_quota_of_its_containers(pod, files):
    pod.quota(None)
    pod.quota(0.5, "/pod/c1")
    pod.fake.group("/pod/sandbox")
    files.read(1.0)
    pod.run(1_000_000, pressure_usec=4_000_000, container_usec=3_000_000)
    assert files.read(6.0).quota_cores == pytest.approx(0.5)


def test_a_container_without_quota_bounds_nothing(pod, files):
    pod.quota(None)
    pod.quota(0.5, "/pod/c1")
    for name in ("sandbox", "free"):
        pod.fake.group(f"/pod/{name}")
    files.read(1.0)
    pod.run(1_000_000, pressure_usec=4_000_000, container_usec=3_000_000)
    assert files.read(6.0).quota_cores == inf


def test_threads_are_looked_at_while_the_pod_waits(pod, files):
    if pod.workload == "v1":
        pytest.skip("a v1 tree has no pressure")
    (pod.folder("cpu", "/pod/c1") / "tasks").write_text("5\n")
    (pod.fake.mounts[""] / "pod/c1/cgroup.threads").write_text("5\n")
    stat = pod.fake.root / "proc/5/schedstat"
    stat.parent.mkdir()
    stat.write_text("1 1000000 1\n")
    files.read(1.0)
    pod.run(1_000_000, pressure_usec=3_000_000)
    stat.write_text("500000001 4001000000 21\n")
    assert files.read(6.0).threads == [ThreadTimes(0.5, 4.0, 20, 5.0, 0.1)]
    for turn in range(counter_files.CALM):
        pod.run(5_000_000 + turn, pressure_usec=3_000_001)
        calm = files.read(11.0 + turn)
    assert calm.threads is None


def from_its_turn_on(pod, before, after):
    """What readings after the first one see: one of them has its turn for memory, not the same one in all Pods."""
    waiting = counter_files.STAT_EVERY - 1 - pod.group.inode % counter_files.STAT_EVERY
    return [before] * waiting + [after] * (counter_files.STAT_EVERY - waiting)


def test_memory_stat_is_read_now_and_then(pod, files):
    files.read(0.0)
    pod.set("memory", "memory.stat", "cache 9\ninactive_file 2000\n", v1="cache 9\ntotal_inactive_file 2000\n")
    seen = []
    for turn in range(1, counter_files.STAT_EVERY + 1):
        pod.run(1000 + turn)
        seen.append(files.read(float(turn)).memory_bytes)
    assert seen == from_its_turn_on(pod, 3096.0, 2096.0)


def test_memory_stat_of_a_pod_that_sleeps_is_read_when_the_kernel_took_memory_back(pod, files):
    files.read(0.0)
    pod.set("memory", "memory.stat", "cache 9\ninactive_file 0\n", v1="cache 9\ntotal_inactive_file 0\n")
    assert {files.read(float(turn)).memory_bytes for turn in range(1, 9)} == {3096.0}
    name = "memory.current" if pod.workload == "v2" else "memory.usage_in_bytes"
    pod.set("memory", name, "3090\n")
    assert [files.read(float(turn)).memory_bytes for turn in range(9, 17)][-1] == 3090.0


def test_a_pod_that_sleeps_on_is_not_read_until_it_runs_or_its_memory_changes(pod, files):
    assert not files.sleeps_on()
    files.read(0.0)
    assert not files.sleeps_on()  # it ran since its start, as far as one knows
    files.read(1.0)
    assert all(files.sleeps_on() for _ in range(10))
    pod.run(5_000)
    assert not files.sleeps_on() and not files.sleeps_on()
    assert files.read(2.0).cpu_usec == 5000
    assert not files.sleeps_on()  # what it used is not what it uses now
    files.read(3.0)
    pod.set("memory", "memory.current" if pod.workload == "v2" else "memory.usage_in_bytes", "3090\n")
    turns = [files.sleeps_on() for _ in range(counter_files.STAT_EVERY)]
    assert not turns[-1] and files.read(4.0).memory_bytes < 3090.0


def test_usage_that_goes_back_by_rounding_is_held(pod, files):
    pod.run(50_000)
    files.read(1.0)
    pod.run(49_999)
    assert files.read(6.0).cpu_usec == 50_000
    pod.run(10)
    assert files.read(11.0).cpu_usec == 10  # another group: demand calls it unknown


def test_nothing_to_read(tmp_path):
    (tmp_path / "sys/fs/cgroup/x").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("\n")
    group = Locator(tmp_path).at("/x")
    files = CounterFiles(group)
    found = files.read(1.0)
    assert found.cpu_usec is None and isnan(found.memory_bytes)
    assert files.descriptors == []
    files.close()


def test_all_descriptors_are_closed(pod):
    before = set(os.listdir("/proc/self/fd"))
    files = CounterFiles(pod.group, io=True)
    files.read(1.0)
    pod.run(1_000_000, pressure_usec=4_000_000, container_usec=3_000_000)
    files.read(6.0)
    assert len(files.descriptors) >= 4
    files.close()
    assert set(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_is_kept_when_there_are_too_few(pod, monkeypatch):
    before, calls, real = set(os.listdir("/proc/self/fd")), [], os.open

    def open_some(*arguments):
        calls.append(arguments)
        if len(calls) > 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*arguments)

    monkeypatch.setattr(os, "open", open_some)
    with pytest.raises(OSError, match="Too many"):
        CounterFiles(pod.group, io=True)
    monkeypatch.undo()
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("data", [b"", b"anon 4\n", b"x\ninactive_file \n", b"x\ninactive_file 7"])
def test_bad_memory_stat(data):
    with pytest.raises(ValueError):
        parse_inactive_file(data)


def test_bad_quota_and_disks():
    for data in (b"", b"1\n", b"a b\n"):
        with pytest.raises(ValueError):
            parse_quota(data)
    assert parse_io_bytes(b"") == 0
    assert parse_io_bytes(b"8:0 rbytes=1 wbytes=2\n8:16 rbytes=4 wbytes=8 rios=9\n") == 15


def test_a_pod_that_did_not_run_did_not_allocate_and_is_looked_at_now_and_then(pod, files):
    files.read(0.0)
    name = "memory.current" if pod.workload == "v2" else "memory.usage_in_bytes"
    pod.set("memory", name, "9096\n")
    seen = [files.read(float(turn)).memory_bytes for turn in range(1, counter_files.STAT_EVERY + 1)]
    assert seen == from_its_turn_on(pod, 3096.0, 8096.0)
    pod.set("memory", name, "5096\n")
    pod.run(5_000)
    assert files.read(20.0).memory_bytes == 4096.0
