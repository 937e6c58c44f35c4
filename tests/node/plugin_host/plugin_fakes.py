"""A cgroup tree made of ordinary files, a kernel that fails on demand, and a journal whose power can be cut."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from carico_agent.lib.supervise.tasks import guard_call
from carico_agent.node.plugin_host import journal as journals
from carico_agent.node.plugin_host import knobs
from carico_agent.node.plugin_host.cgroupfs import CgroupFiles
from carico_agent.node.plugin_host.journal import Journal

FRESH = {
    "memory.high": "max",
    "memory.low": "0",
    "memory.min": "0",
    "cpuset.cpus": "",
    "cpu.max": "max 100000",
    "cpu.max.burst": "0",
    "memory.reclaim": "",
}


class PowerLoss(BaseException):
    """Everything stops here: no handler, no cleanup."""


class Fuse:
    """Counts the points where something can go wrong, and makes it go wrong at the n-th."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.fault: BaseException | None = None
        self.after = False

    def arm(self, left: int, fault: BaseException, after: bool = False) -> None:
        self.left, self.fault, self.after = left, fault, after

    def disarm(self) -> None:
        self.left = None

    @contextmanager
    def point(self) -> Iterator[None]:
        """A fault strikes before the deed or, `after`, when it is done but its caller does not know."""
        if self.left is None:
            yield
            return
        self.left -= 1
        if self.left >= 0:
            yield
            return
        fault, self.left = self.fault, None
        assert fault is not None
        if self.after:
            yield
        raise fault


class FakeKernel(CgroupFiles):
    """Ordinary files, but values are spelled as the kernel would; every access passes the fuse."""

    def __init__(self, fuse: Fuse | None = None) -> None:
        self.fuse = fuse or Fuse()
        self.log: list[tuple[str, str, str]] = []
        self.hook: Callable[[str, str, str], None] = lambda cgroup, key, value: None

    def read(self, cgroup: str, inode: int | None, key: str) -> str:
        with self.fuse.point():
            return super().read(cgroup, inode, key)

    def write(self, cgroup: str, inode: int, key: str, value: str) -> None:
        self.hook(cgroup, key, value)
        with self.fuse.point():
            spelled = value if knobs.is_action(key) else knobs.canon(key, value, os.sysconf("SC_PAGE_SIZE"))
            super().write(cgroup, inode, key, spelled)
            self.log.append((os.path.basename(cgroup), key, spelled))


class FakeDisk(Journal):
    """A journal that knows what has reached the disk; `power_loss` keeps some of the rest."""

    def __init__(self, path: Path, fuse: Fuse, boot: str = "boot-1") -> None:
        self.fuse = fuse
        super().__init__(path, boot)
        self.synced_bytes = os.fstat(self._file).st_size

    def _write(self, data: bytes) -> int:
        with self.fuse.point():
            return super()._write(data)

    def _sync(self) -> None:
        with self.fuse.point():
            self.synced_bytes = os.fstat(self._file).st_size

    def compact(self, force: bool = False) -> bool:
        done = super().compact(force)
        if done:
            self.synced_bytes = os.fstat(self._file).st_size
        return done

    def power_loss(self, kept_ratio: float) -> None:
        """The process is gone; of what was not synced, a part survives."""
        size = os.fstat(self._file).st_size
        kept = min(size, self.synced_bytes)
        os.ftruncate(self._file, kept + int((size - kept) * kept_ratio))
        self.close()


class InlineCall:
    """deadline.Call without a thread: for tests in which order matters and nothing hangs."""

    def __init__(self, name, work, landed=None):
        self.error = guard_call(name, work)

    def wait(self, deadline_s: float) -> bool:
        return True


def make_cgroup(path: Path, **values: str) -> int:
    path.mkdir(parents=True)
    for key, value in (FRESH | {k.replace("_", "."): v for k, v in values.items()}).items():
        (path / key).write_text(value + "\n")
    return path.stat().st_ino


def value_of(path: Path, key: str) -> str:
    return (path / key).read_text().strip()


def no_sync(monkeypatch) -> None:
    monkeypatch.setattr(journals, "_sync_folder", lambda folder: None)
