"""The writer: order, limits, refusals, faults, and writes that hang."""

import errno
import os
import threading
import time

import pytest

from carico_agent.lib.supervise.ticker import Ticker
from carico_agent.node.plugin_host.write_rate import WriteLimits
from carico_agent.node.plugin_host.writer import CgroupWriter, PluginWriter
from carico_agent.plugin_api import Change

from .plugin_fakes import FakeDisk, FakeKernel, Fuse, make_cgroup, value_of

QUICK = WriteLimits(write_deadline_s=5.0, rewrite_after_s=0.0, min_step_ratio=0.0)


class Bench:
    """A writer on a fake tree."""

    def __init__(self, folder, limits=QUICK, dry_run=False, owner_of=lambda key: None):
        self.folder, self.clock_s = folder, 0.0
        self.kernel, self.disk_fuse = FakeKernel(), Fuse()
        self.journal = FakeDisk(folder / "journal", self.disk_fuse)
        self.writer = CgroupWriter(self.journal, dry_run, limits, owner_of, self.kernel, lambda: self.clock_s)
        self.inodes = {}

    def make(self, name, **values):
        self.inodes[name] = make_cgroup(self.folder / name, **values)
        return self.folder / name

    def change(self, name, key, value):
        return Change(str(self.folder / name), self.inodes[name], key, value, "because")

    def write(self, *wishes):
        return [(o.state, o.detail) for o in self.writer.write("p", [self.change(*wish) for wish in wishes])]

    def states(self, *wishes):
        return [state for state, _ in self.write(*wishes)]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_journal_first_then_write_then_read_back(bench):
    pod = bench.make("pod")
    seen = []
    bench.kernel.hook = lambda *_: seen.append(next(iter(bench.journal.entries.values())).ours)
    assert bench.states(("pod", "memory.high", "10000")) == ["written"]
    assert seen == [["8192"]], "the intent was on disk before the write"
    assert value_of(pod, "memory.high") == "8192" and bench.journal.synced_bytes > 0
    assert [e.applied for e in bench.journal.entries.values()] == [True]
    assert bench.writer.original(str(pod), bench.inodes["pod"], "memory.high") == "max"


def test_only_if_different(bench):
    bench.make("pod", memory_high="8192")
    assert bench.states(("pod", "memory.high", "8200")) == ["unchanged"]
    assert bench.kernel.log == [] and bench.journal.path.read_bytes() == b""


def test_growing_goes_down_and_shrinking_goes_up(bench):
    for name in ("pod", "pod/box"):
        bench.make(name, memory_high="1048576")
    bench.write(("pod/box", "memory.high", "4194304"), ("pod", "memory.high", "4194304"))
    bench.write(("pod", "memory.high", "8192"), ("pod/box", "memory.high", "8192"))
    assert [name for name, _, _ in bench.kernel.log] == ["pod", "box", "box", "pod"]


def test_cpusets_move_over_their_union(bench):
    for name in ("pod", "pod/box"):
        bench.make(name, cpuset_cpus="0-1")
    assert bench.states(("pod/box", "cpuset.cpus", "1-2"), ("pod", "cpuset.cpus", "1-2")) == ["written", "written"]
    assert bench.kernel.log == [
        ("pod", "cpuset.cpus", "0-2"),
        ("box", "cpuset.cpus", "0-2"),
        ("box", "cpuset.cpus", "1-2"),
        ("pod", "cpuset.cpus", "1-2"),
    ]
    assert {e.original for e in bench.journal.entries.values()} == {"0-1"}


def test_burst_shrinks_before_and_grows_after_the_quota(bench):
    bench.make("pod", cpu_max="50000 100000")
    bench.write(("pod", "cpu.max.burst", "40000"), ("pod", "cpu.max", "90000 100000"))
    bench.write(("pod", "cpu.max", "20000 100000"), ("pod", "cpu.max.burst", "1000"))
    assert [key for _, key, _ in bench.kernel.log] == ["cpu.max", "cpu.max.burst", "cpu.max.burst", "cpu.max"]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("memory.max", "4096", "not a file we write"),
        ("memory.high", "-1", "not a whole number"),
        ("memory.high", "lots", "not a whole number"),
        ("cgroup.kill", "1", "not a file we write"),
        ("../memory.high", "4096", "not a file we write"),
    ],
)
def test_refused_files_and_values(bench, key, value, why):
    bench.make("pod")
    [(state, detail)] = bench.write(("pod", key, value))
    assert state == "refused" and why in detail and bench.kernel.log == []


def test_a_missing_controller_is_reported(bench):
    (bench.make("pod") / "memory.high").unlink()
    assert "controller is not enabled" in bench.write(("pod", "memory.high", "4096"))[0][1]


def test_a_reborn_cgroup_is_left_alone(bench):
    old = bench.make("pod")
    bench.write(("pod", "memory.high", "8192"))
    inode = bench.inodes["pod"]
    old.rename(bench.folder / "removed")
    new = bench.make("pod")
    bench.inodes["pod"] = inode
    assert bench.states(("pod", "memory.high", "16384")) == ["gone"]
    assert [r.how for r in bench.writer.stop()] == ["gone"]
    assert value_of(new, "memory.high") == "max"


def test_dry_run_is_the_default_and_says_what_it_would_do(tmp_path):
    bench = Bench(tmp_path, dry_run=True)
    pod = bench.make("pod")
    [(state, detail)] = bench.write(("pod", "memory.high", "8192"))
    assert state == "dry-run" and "would write '8192'" in detail and value_of(pod, "memory.high") == "max"
    assert CgroupWriter(None).dry_run and CgroupWriter(None, dry_run=False).dry_run, "no journal, no writes"
    assert CgroupWriter(bench.journal).dry_run


def test_an_owned_file_is_refused_with_the_owner(tmp_path):
    bench = Bench(tmp_path, owner_of=lambda key: "memory.high belongs to koordlet" if "high" in key else None)
    bench.make("pod")
    assert bench.write(("pod", "memory.high", "8192"))[0] == ("refused", "memory.high belongs to koordlet")
    assert bench.states(("pod", "memory.low", "8192")) == ["written"]


def test_rate_limit_and_minimum_step(tmp_path):
    bench = Bench(tmp_path, WriteLimits(rewrite_after_s=10, writes_per_minute=3, min_step_ratio=0.05))
    bench.make("pod", memory_high="100000000")
    bench.make("other")
    assert bench.states(("pod", "memory.high", "100999999")) == ["held"]
    assert bench.states(("pod", "memory.high", "200000000")) == ["written"]
    assert bench.states(("pod", "memory.high", "300000000")) == ["held"]
    bench.clock_s = 11
    assert bench.states(("pod", "memory.high", "300000000"), ("pod", "memory.low", "4096")) == ["written", "written"]
    assert "too many" in bench.write(("other", "memory.high", "4096"))[0][1]
    bench.clock_s = 72
    assert bench.states(("other", "memory.high", "4096")) == ["written"]


def test_undo_is_never_delayed(tmp_path):
    bench = Bench(tmp_path, WriteLimits(rewrite_after_s=10, writes_per_minute=1))
    pod = bench.make("pod")
    bench.write(("pod", "memory.high", "8192"))
    mine = PluginWriter("p", bench.writer)
    assert mine.undo(str(pod), bench.inodes["pod"], "memory.high", "it hurts").state == "restored"
    assert value_of(pod, "memory.high") == "max" and not bench.journal.entries
    assert mine.undo(str(pod), bench.inodes["pod"], "memory.high", "again").state == "unchanged"


@pytest.mark.parametrize("theirs", ["4096", "max"])
def test_what_somebody_else_wrote_is_theirs_from_then_on(bench, theirs):
    pod = bench.make("pod")
    bench.write(("pod", "memory.high", "8192"))
    (pod / "memory.high").write_text(theirs + "\n")
    for _ in range(2):
        [(state, detail)] = bench.write(("pod", "memory.high", "16384"))
        assert state == "refused" and "over ours: left to it" in detail
    bench.writer.stop()
    assert value_of(pod, "memory.high") == theirs


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EBUSY, errno.EINVAL])
def test_a_failing_write_is_reported_and_leaves_nothing_open(bench, number):
    pod = bench.make("pod")
    bench.kernel.fuse.arm(2, OSError(number, os.strerror(number)))  # after the look and the look again
    [(state, detail)] = bench.write(("pod", "memory.high", "8192"))
    assert state == "failed" and os.strerror(number) in detail
    assert value_of(pod, "memory.high") == "max" and not bench.journal.entries


def test_a_file_that_vanishes_while_we_write(bench):
    pod = bench.make("pod")
    bench.kernel.hook = lambda *_: pod.rename(bench.folder / "removed")
    assert bench.states(("pod", "memory.high", "8192")) == ["gone"]
    assert not bench.journal.entries


def test_enodev_means_it_died_after_we_opened_it(bench):
    bench.make("pod")
    bench.kernel.fuse.arm(0, OSError(errno.ENODEV, "No such device"))
    real = bench.kernel.read

    def read(cgroup, inode, key):
        from carico_agent.node.plugin_host.cgroupfs import _folder

        with _folder(cgroup, inode):
            return real(cgroup, inode, key)

    bench.kernel.read = read
    assert bench.states(("pod", "memory.high", "8192")) == ["gone"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("left", [0, 1])
def test_no_journal_no_write(bench, number, left):
    pod = bench.make("pod")
    bench.disk_fuse.arm(left, OSError(number, os.strerror(number)))  # in write(2) or in fsync(2)
    [(state, detail)] = bench.write(("pod", "memory.high", "8192"))
    assert state == "refused" and "journal" in detail and bench.kernel.log == []
    assert value_of(pod, "memory.high") == "max"
    assert bench.states(("pod", "memory.high", "8192")) == ["written"], "it works again when the disk does"


def test_somebody_quicker_between_our_write_and_our_look_wins(bench):
    pod = bench.make("pod")
    real = bench.kernel.write

    def write(cgroup, inode, key, value):
        real(cgroup, inode, key, value)
        (pod / key).write_text("4096\n")

    bench.kernel.write = write
    assert bench.write(("pod", "memory.high", "8192"))[0] == ("failed", "reads back '4096'")
    bench.writer.stop()
    assert value_of(pod, "memory.high") == "4096"


def test_the_same_file_twice_in_one_batch(bench):
    pod = bench.make("pod")
    assert bench.states(("pod", "memory.high", "8192"), ("pod", "memory.high", "16384")) == ["written", "held"]
    bench.writer.stop()
    assert value_of(pod, "memory.high") == "max"


def test_memory_reclaim_is_an_action(bench):
    pod = bench.make("pod")
    assert bench.states(("pod", "memory.reclaim", "4096")) == ["written"]
    bench.kernel.fuse.arm(0, BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
    assert bench.states(("pod", "memory.reclaim", "4096")) == ["written"], "EAGAIN: it did what it could"
    bench.kernel.fuse.arm(0, OSError(errno.EINVAL, "Invalid argument"))
    assert bench.states(("pod", "memory.reclaim", "x")) == ["failed"]
    assert not bench.journal.entries and pod.exists()


def test_after_stop_nothing_is_written(bench):
    pod = bench.make("pod")
    bench.write(("pod", "memory.high", "8192"))
    assert [r.how for r in bench.writer.stop()] == ["restored"]
    assert bench.write(("pod", "memory.high", "8192"))[0] == ("refused", "the agent is stopping")
    assert value_of(pod, "memory.high") == "max"


class Hanging:
    """A kernel that hangs in write until it is released."""

    def __init__(self, bench, key="memory.high"):
        self.go, self.entered = threading.Event(), threading.Event()
        self._key = key
        bench.kernel.hook = self

    def __call__(self, cgroup, key, value):
        if key == self._key and value != "max":
            self.entered.set()
            assert self.go.wait(30)


def eventually(check):
    until_s = time.monotonic() + 20
    while not check():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_a_hanging_write_is_pending_and_others_go_on(tmp_path):
    bench = Bench(tmp_path, WriteLimits(write_deadline_s=0.05, rewrite_after_s=0, min_step_ratio=0))
    pod = bench.make("pod")
    hanging = Hanging(bench)
    assert bench.states(("pod", "memory.high", "8192"), ("pod", "memory.low", "4096")) == ["pending", "written"]
    assert "not ended yet" in bench.write(("pod", "memory.high", "16384"))[0][1]
    hanging.go.set()
    eventually(lambda: not bench.writer._flying)
    assert value_of(pod, "memory.high") == "8192"
    bench.writer.stop()
    assert value_of(pod, "memory.high") == "max"


def test_a_write_that_lands_after_the_restore_is_put_back_again(tmp_path):
    bench = Bench(tmp_path, WriteLimits(write_deadline_s=0.05, rewrite_after_s=0, min_step_ratio=0))
    pod = bench.make("pod")
    hanging = Hanging(bench)
    assert bench.states(("pod", "memory.high", "8192")) == ["pending"]
    bench.writer.stop()
    assert bench.journal.entries, "still open: it may yet land"
    hanging.go.set()
    eventually(lambda: not bench.journal.entries)
    assert value_of(pod, "memory.high") == "max"


def test_too_many_hanging_writes_hold_everything(tmp_path):
    bench = Bench(tmp_path, WriteLimits(write_deadline_s=0.02, rewrite_after_s=0, min_step_ratio=0))
    for n in range(6):
        bench.make(f"pod{n}")
    hanging = Hanging(bench)
    states = bench.states(*[(f"pod{n}", "memory.high", "8192") for n in range(6)])
    assert states == ["pending"] * 4 + ["held"] * 2
    hanging.go.set()
    eventually(lambda: not bench.writer._flying)


@pytest.mark.alone
def test_a_write_that_blocks_for_five_seconds_delays_no_sample(tmp_path):
    """A 10 Hz ticker, as the sampler's, beside a write that blocks for 5 s: every tick comes, none is late by it."""
    bench = Bench(tmp_path, WriteLimits(write_deadline_s=10.0, rewrite_after_s=0, min_step_ratio=0))
    bench.make("pod")
    hanging = Hanging(bench)
    ticker = Ticker(0.1, lambda now_s: None)
    sampling = threading.Thread(target=ticker.run)
    writing = threading.Thread(target=lambda: bench.write(("pod", "memory.high", "8192")))
    sampling.start()
    writing.start()
    assert hanging.entered.wait(10)
    before = ticker.lateness.ticks
    time.sleep(5.0)
    during, late_s = ticker.lateness.ticks - before, ticker.lateness.max_s
    hanging.go.set()
    writing.join()
    ticker.stop()
    sampling.join()
    assert during >= 25, "ticks stopped while a write was blocked"  # 50 on an idle machine
    assert late_s < 2.5, "a tick waited for the write"
