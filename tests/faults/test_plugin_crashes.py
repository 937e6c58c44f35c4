"""Random lives of an agent with all plugins that write, on a simulated kernel and disk: no value stays behind.

A life is a row of ticks, Pods that come and go, harm that makes a plugin take back, somebody else who writes, full
disks, `kill -9` and power failures in the middle of anything. After the last restart every file of every living cgroup
must hold what stood there before the agent, or what somebody else wrote since. `make fuzz` lives 10,000 of them,
`make test` 150; tests/vm/guest.py does a few in a real cgroup v2 tree.
"""

import errno
import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carico_agent.node.plugin_host import cgroupfs
from carico_agent.node.plugin_host import writer as writers
from carico_agent.node.plugin_host.restore import restore_all
from carico_agent.node.plugin_host.runner import Runner
from carico_agent.node.plugin_host.write_rate import WriteLimits
from carico_agent.node.plugin_host.writer import CgroupWriter, PluginWriter
from carico_agent.plugin_api import Plugin
from plugins import control_plane, cpu_pinning, memory_qos
from plugins.conftest import FakeNode
from tests.faults.damage import SEED
from tests.faults.tally import counted
from tests.node.plugin_host.plugin_fakes import FakeDisk, FakeKernel, Fuse, InlineCall, PowerLoss, no_sync, value_of

LIVES = int(os.environ.get("CARICO_LIVES", "150"))
STEPS = 12
MI = 1 << 20
KNOBS = ("memory.high", "memory.low", "memory.min", "cpuset.cpus", "cpu.weight")
THEIRS = {"memory.high": "8192000", "memory.low": "8192", "cpu.weight": "77"}
"""Values that no plugin would choose here, so that a mix-up cannot hide."""
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def plugins() -> list[Plugin]:
    return [
        memory_qos.Plugin(memory_qos.MemoryQosSettings(requests={"*": "100Mi"}, protect=True, back_off_s=1.0)),
        cpu_pinning.Plugin(cpu_pinning.CpuPinningSettings(pods={"pinned-*": 1})),
        control_plane.Plugin(control_plane.ControlPlaneSettings(groups={"etcd": "etcd.service"}, calm_s=120)),
    ]


class Life:
    """One agent after another on one node."""

    def __init__(self, folder: Path, dice: random.Random, tally: Counter[str]) -> None:
        self.dice, self.tally, self.now_s, self.born = dice, tally, 0.0, 0
        self.fuse = Fuse()
        self.kernel = FakeKernel(self.fuse)
        self.folder, self.node = folder, FakeNode(folder)
        self.node.journal.close()
        (folder / "journal").unlink()
        self.baseline: dict[tuple[Path, str], str] = {}
        self.etcd = self.node.group("system.slice/etcd.service")
        self._remember(self.etcd)
        for _ in range(3):
            self.pod_comes()
        self.start()

    def _remember(self, group: Path) -> None:
        for key in KNOBS:
            self.baseline[group, key] = value_of(group, key)

    def start(self) -> None:
        """As the agent does: put back what an earlier life left, then begin with new plugins."""
        self.journal = FakeDisk(self.folder / "journal", self.fuse)
        restore_all(self.journal, self.kernel)
        limits = WriteLimits(rewrite_after_s=0, min_step_ratio=0)
        self.writer = CgroupWriter(self.journal, dry_run=False, limits=limits, files=self.kernel)
        self.runners = [
            Runner(plugin, PluginWriter(plugin.name, self.writer), lambda: self.node.view(self.now_s))
            for plugin in plugins()
        ]

    def step(self) -> None:
        deeds = (self.tick,) * 4 + (
            self.pod_comes,
            self.pod_ends,
            self.memory_hurts,
            self.etcd_waits,
            self.somebody_writes,
            self.clean_restart,
            self.kill,
        )
        accident, deed = self.dice.choice(("", "", "power", "disk")), self.dice.choice(deeds)
        if accident == "power":
            self.fuse.arm(self.dice.randint(0, 15), PowerLoss(), after=self.dice.random() < 0.5)
        elif accident == "disk":
            number = self.dice.choice((errno.EDQUOT, errno.EIO, errno.EBUSY))
            self.fuse.arm(self.dice.randint(0, 15), OSError(number, os.strerror(number)), self.dice.random() < 0.5)
        self._survive(deed)

    def _survive(self, deed: Callable[[], None]) -> None:
        try:
            deed()
        except PowerLoss:
            self.tally["power failures"] += 1
            self.fuse.disarm()
            self.journal.power_loss(self.dice.random())
            self.start()
        finally:
            self.fuse.disarm()

    def tick(self) -> None:
        self.now_s += self.dice.choice((1.0, 30.0, 60.0))
        for runner in self.runners:
            runner.step()
        self.tally["held values"] += len(self.journal.entries)

    def pod_comes(self) -> None:
        self.born += 1
        workload = self.dice.choice(("pinned", "web"))
        files = {"memory.max": str(self.dice.choice((200, 300)) * MI)}
        pod = self.node.pod(f"{workload}-{self.born}", containers={"main": {}, "helper": {}}, files=files)
        for group in (pod, pod / "main", pod / "helper"):
            self._remember(group)

    def pod_ends(self) -> None:
        if len(self.node.pods) < 2:
            return
        pod = self.dice.choice(self.node.pods)
        self.node.end(pod.name)
        gone = Path(pod.cgroup)
        gone.rename(self.folder / f"ended-{pod.name}")  # kept, so that its inode is not given out again
        for group, key in [item for item in self.baseline if item[0].is_relative_to(gone)]:
            del self.baseline[group, key]

    def memory_hurts(self) -> None:
        pod = Path(self.dice.choice(self.node.pods).cgroup)
        total = round(self.now_s * 1e6)
        (pod / "memory.pressure").write_text(f"some avg10=0.00 total={total}\nfull avg10=0.00 total={total}\n")

    def etcd_waits(self) -> None:
        (self.etcd / "cpu.pressure").write_text(f"some avg10=0 total={round(self.now_s * 1e6)}\nfull avg10=0 total=0\n")

    def somebody_writes(self) -> None:
        key = self.dice.choice(tuple(THEIRS))
        group = self.etcd if key == "cpu.weight" else Path(self.dice.choice(self.node.pods).cgroup)
        FakeKernel().write(str(group), group.stat().st_ino, key, THEIRS[key])
        self.baseline[group, key] = value_of(group, key)

    def clean_restart(self) -> None:
        self.writer.stop()
        self.journal.close()
        self.start()

    def kill(self) -> None:
        self.tally["kills"] += 1
        self.journal.power_loss(self.dice.random())
        self.start()

    def left_behind(self) -> list[str]:
        """After one more restart without accidents."""
        self.kill()
        self.journal.close()
        found = ((group, key, value_of(group, key), wanted) for (group, key), wanted in self.baseline.items())
        return [f"{group.name}/{key} is {now!r}, not {wanted!r}" for group, key, now, wanted in found if now != wanted]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Path]:
    """A folder in memory; ordinary folders pass for cgroup2, nothing waits for a disk, writes happen in order."""
    no_sync(monkeypatch)
    monkeypatch.setattr(cgroupfs, "is_cgroup2", lambda device: True)
    monkeypatch.setattr(writers, "BoundedCall", InlineCall)
    caplog.set_level(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="carico-lives-", dir=MEMORY))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.long
def test_no_value_is_left_behind(memory: Path) -> None:
    tally = Counter[str]()
    for number in counted(range(LIVES), LIVES, "lives of an agent with plugins"):
        place = memory / f"{number}"
        place.mkdir()
        life = Life(place, random.Random(f"{SEED} {number}"), tally)
        for _ in range(STEPS):
            life.step()
        assert life.left_behind() == [], f"life {number} of seed {SEED}"
        shutil.rmtree(place)
    print(f"{LIVES} lives, {dict(tally)}")
    assert min(tally["power failures"], tally["kills"]) > LIVES / 10
    assert tally["held values"] > 10 * LIVES
