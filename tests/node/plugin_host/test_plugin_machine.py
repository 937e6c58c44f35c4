"""1,000 random lives of an agent: whatever happens, the end is the original value or somebody else's.

The oracle is strict: "the last value that was not ours". Values of the agent and of others come from different sets,
so that a mix-up cannot hide.
"""

import errno
import logging
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from carico_agent.node.plugin_host import writer as writers
from carico_agent.node.plugin_host.restore import restore_all
from carico_agent.node.plugin_host.write_rate import WriteLimits
from carico_agent.node.plugin_host.writer import CgroupWriter
from carico_agent.plugin_api import Change
from tests.faults.tally import Progress

from .plugin_fakes import FakeDisk, FakeKernel, Fuse, InlineCall, PowerLoss, make_cgroup, no_sync, value_of

OURS = {
    "memory.high": ["1000000", "3000000", "7777777"],
    "cpuset.cpus": ["2", "2-3", "3,5"],
    "cpu.max": ["50000 100000", "70000 100000"],
    "cpu.max.burst": ["10000", "20000"],
}
THEIRS = {
    "memory.high": ["max", "4096", "8192000"],
    "cpuset.cpus": ["", "0-1", "7"],
    "cpu.max": ["max 100000", "90000 100000"],
    "cpu.max.burst": ["0", "500"],
}
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # 20,000 steps: spare the disk
GROUPS = ("pod", "pod/box", "other")

groups = st.sampled_from(GROUPS)
keys = st.sampled_from(sorted(OURS))
faults = st.sampled_from([errno.ENOSPC, errno.EIO, errno.EBUSY])
LIVES = int(os.environ.get("CARICO_LIVES", "1000"))
PROGRESS = Progress("lives of a writer", LIVES)
many = {"max_examples": LIVES, "stateful_step_count": 20}


class Agent(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="carico-machine-", dir=MEMORY))
        self.tree, self.removed_folder = self.folder / "cgroup", self.folder / "removed"
        self.removed_folder.mkdir()
        self.fuse, self.clock_s = Fuse(), 0.0
        self.kernel = FakeKernel(self.fuse)
        self.inodes: dict[str, int] = {}
        self.baseline: dict[tuple[str, str], str] = {}
        self.removed: list[tuple[Path, dict[str, str]]] = []

    @initialize()
    def boot(self) -> None:
        for group in GROUPS:
            self._born(group, {})
        self._start()

    def _born(self, group: str, values: dict[str, str]) -> None:
        self.inodes[group] = make_cgroup(self.tree / group)
        for key, value in values.items():
            FakeKernel().write(str(self.tree / group), self.inodes[group], key, value)
        for key in OURS:
            self.baseline[group, key] = value_of(self.tree / group, key)

    def _start(self) -> None:
        """As the agent does: open the journal, put back what an earlier life left, then work."""
        self.journal = FakeDisk(self.folder / "journal", self.fuse)
        restore_all(self.journal, self.kernel)
        limits = WriteLimits(rewrite_after_s=0, min_step_ratio=0)
        self.writer = CgroupWriter(
            self.journal, dry_run=False, limits=limits, files=self.kernel, clock=lambda: self.clock_s
        )

    def _live(self, deed, kept_ratio: float = 0.0) -> None:
        """Do it; if the power fails meanwhile, start again."""
        try:
            deed()
        except PowerLoss:
            self.journal.power_loss(kept_ratio)
            self._live(self._start, kept_ratio)
        finally:
            self.fuse.disarm()

    @rule(where=st.lists(st.tuples(groups, keys, st.integers(0, 2)), min_size=1, max_size=4))
    def write(self, where) -> None:
        self._live(lambda: self._write(where))

    def _write(self, where) -> None:
        self.writer.write(
            "machine",
            [
                Change(str(self.tree / group), self.inodes[group], key, OURS[key][n % len(OURS[key])], "test")
                for group, key, n in where
            ],
        )

    @rule(group=groups, key=keys)
    def undo(self, group, key) -> None:
        self._live(lambda: self.writer.undo("machine", str(self.tree / group), self.inodes[group], key, "test"))

    @rule(
        where=st.lists(st.tuples(groups, keys, st.integers(0, 2)), min_size=1, max_size=4),
        left=st.integers(0, 12),
        kept=st.floats(0, 1),
        after=st.booleans(),
    )
    def write_and_power_loss(self, where, left, kept, after) -> None:
        self.fuse.arm(left, PowerLoss(), after)
        self._live(lambda: self._write(where), kept)

    @precondition(lambda self: self.inodes and self.journal.entries)
    @rule(
        which=st.integers(0, 20), n=st.integers(0, 2), left=st.integers(0, 7), kept=st.floats(0, 1), after=st.booleans()
    )
    def rewrite_and_power_loss(self, which, n, left, kept, after) -> None:
        knob = list(self.journal.entries)[which % len(self.journal.entries)]
        self.write_and_power_loss([(os.path.relpath(knob.cgroup, self.tree), knob.key, n)], left, kept, after)

    @rule(
        where=st.lists(st.tuples(groups, keys, st.integers(0, 2)), min_size=1, max_size=4),
        left=st.integers(0, 12),
        number=faults,
        after=st.booleans(),
    )
    def write_and_fault(self, where, left, number, after) -> None:
        self.fuse.arm(left, OSError(number, os.strerror(number)), after)
        self._live(lambda: self._write(where))

    @rule(left=st.integers(0, 8), kept=st.floats(0, 1), after=st.booleans())
    def stop_and_power_loss(self, left, kept, after) -> None:
        self.fuse.arm(left, PowerLoss(), after)
        self._live(self._restart, kept)

    @rule(left=st.integers(0, 8), number=faults, after=st.booleans())
    def stop_and_fault(self, left, number, after) -> None:
        self.fuse.arm(left, OSError(number, os.strerror(number)), after)
        self._live(self._restart)

    def _restart(self) -> None:
        self.writer.stop()
        self.journal.close()
        self._start()

    @rule(kept=st.floats(0, 1))
    def kill(self, kept) -> None:
        self.journal.power_loss(kept)
        self._live(self._start)

    @rule(group=groups, key=keys, n=st.integers(0, 2))
    def somebody_else_writes(self, group, key, n) -> None:
        value = THEIRS[key][n % len(THEIRS[key])]
        spelled = FakeKernel()
        spelled.write(str(self.tree / group), self.inodes[group], key, value)
        self.baseline[group, key] = value_of(self.tree / group, key)

    @precondition(lambda self: self.inodes and self.journal.entries)
    @rule(which=st.integers(0, 20), n=st.integers(0, 2))
    def somebody_else_writes_over_ours(self, which, n) -> None:
        knob = list(self.journal.entries)[which % len(self.journal.entries)]
        group = os.path.relpath(knob.cgroup, self.tree)
        self.somebody_else_writes(group, knob.key, n)

    @precondition(lambda self: self.removed)
    @rule(where=st.lists(st.tuples(groups, keys, st.integers(0, 2)), min_size=1, max_size=2))
    def a_wish_for_a_cgroup_that_was_reborn(self, where) -> None:
        """The plugin has not noticed yet: it names the old inode, which lives on among the removed ones."""
        old = self.removed[-1][0].stat().st_ino
        outcomes = self.writer.write(
            "machine",
            [
                Change(str(self.tree / group), old, key, OURS[key][n % len(OURS[key])], "test")
                for group, key, n in where
            ],
        )
        assert {outcome.state for outcome in outcomes} == {"gone"}

    @rule(group=groups, ours=st.booleans())
    def die_and_be_reborn(self, group, ours) -> None:
        """Somebody may even give it, at birth, the very value that we had written."""
        for name in [g for g in GROUPS if g == group or g.startswith(group + "/")][::-1]:
            gone = self.removed_folder / f"{len(self.removed)}"
            (self.tree / name).rename(gone)  # kept, so that its inode is not given out again
            self.removed.append((gone, {key: value_of(gone, key) for key in OURS}))
        for name in [g for g in GROUPS if g == group or g.startswith(group + "/")]:
            self._born(name, {key: values[0] for key, values in OURS.items()} if ours else {})

    @rule()
    def compact(self) -> None:
        self._live(lambda: self.journal.compact(force=True))

    @rule(passed_s=st.sampled_from([1.0, 11.0, 61.0]))
    def time_passes(self, passed_s) -> None:
        self.clock_s += passed_s

    @precondition(lambda self: self.inodes)
    @rule()
    def all_is_well_after_a_restart(self) -> None:
        self._restart()
        self._check()

    def _check(self) -> None:
        for (group, key), wanted in self.baseline.items():
            assert value_of(self.tree / group, key) == wanted, (group, key)
        for gone, values in self.removed:
            assert {key: value_of(gone, key) for key in OURS} == values, "a dead cgroup was written"

    def teardown(self) -> None:
        if self.inodes:
            self.writer.stop()
            self.journal.close()
            self._check()
        shutil.rmtree(self.folder)
        PROGRESS.one()


@pytest.fixture
def still(monkeypatch, caplog):
    no_sync(monkeypatch)
    monkeypatch.setattr(writers, "BoundedCall", InlineCall)
    caplog.set_level(logging.CRITICAL)


@pytest.mark.long
def test_a_thousand_lives(still):
    run_state_machine_as_test(Agent, settings=settings(**many, deadline=None, suppress_health_check=list(HealthCheck)))
