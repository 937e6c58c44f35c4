"""All signals of this node, read at one tick.

A read has three outcomes: a value; absent (the node never has it: named once in `absent`, not tried again); failed
(counted in `failed`, None in the reading, tried again at the next tick).

Reading has two halves: `grab` makes the system calls and keeps the bytes, `interpret` understands them. Ten times a
second a sleeping process finds its caches cold, and every line of code run then costs five times what it costs in a
loop (180 µs against 35 for both halves). So a tick only grabs, and once a second ten grabs are understood in one go.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from os import pread
from typing import TypeVar

from carico_agent.lib.trace.reading import Link, Reading
from carico_agent.node.sampling import meminfo, pressure, stat, zoneinfo
from carico_agent.node.sampling.diskstats import DiskReader
from carico_agent.node.sampling.link import LinkReader
from carico_agent.node.sampling.root import Absent, Root

S = TypeVar("S")
T = TypeVar("T")
NO_PRESSURE = "; until then the number of runnable tasks stands in, which is coarser"


@dataclass(slots=True)
class Grab:
    """The kernel's texts of one tick, not yet understood; None is "unknown at this tick"."""

    t: float
    """Monotonic seconds."""
    stat: bytes | None
    pressure: bytes | None
    memory: bytes | None
    zones: bytes | None = None
    """Only once a second; the last one counts meanwhile."""
    io_pressure: bytes | None = None
    disks: bytes | None = None
    links: dict[str, Link] | None = None


class NodeReader:
    """Reads cpu and memory, and io and network if asked to. Never fails: what is not there is named in `absent`."""

    def __init__(self, root: Root, io: bool = False, network: bool = False) -> None:
        self.resources: tuple[str, ...] = ("cpu", "memory", *(["io"] if io else []), *(["network"] if network else []))
        self.absent: dict[str, str] = {}
        self.failed: dict[str, int] = Counter()
        self._pressure = self._have("cpu.pressure", lambda: pressure.open_file(root, "cpu"))
        self._stat = self._have("cpu", lambda: stat.open_file(root, whole=self._pressure is None))
        self._memory = self._have("memory", lambda: meminfo.open_file(root))
        self._zones = self._have("memory.percpu", lambda: zoneinfo.open_file(root))
        self._zones_due_t = self._more_due_t = -inf
        self._percpu_kb: int | None = None
        self._io_pressure = self._have("io.pressure", lambda: pressure.open_file(root, "io")) if io else None
        self._disks = self._have("io.disks", lambda: DiskReader(root)) if io else None
        self._links = self._have("network", lambda: LinkReader(root)) if network else None
        self._first_look()

    def _have(self, signal: str, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except Absent as reason:
            self.absent[signal] = str(reason)
        except OSError as error:  # neither missing nor forbidden; it would not get better by itself
            self.absent[signal] = f"{signal}: {error}"
        return None

    def _first_look(self) -> None:
        """What can only be known from the contents; then the verdict is final."""
        if "cpu.pressure" in self.absent:
            self.absent["cpu.pressure"] += NO_PRESSURE
        if self._links:
            self.absent.update({f"network.{name}": why for name, why in self._links.unknown.items()})
        text = self._text("memory", self._memory.read) if self._memory else None
        memory = self._parsed("memory", meminfo.parse, text)
        if memory and memory.estimated:
            self.absent["memory.available"] = meminfo.OLD_KERNEL
        text = self._text("cpu", self._stat.read) if self._stat else None
        counted = self._parsed("cpu", stat.parse, text)
        self.cores = counted.cores if counted else os.cpu_count() or 1
        self._lacks = tuple(self.absent)
        self._usual = tuple(file for file in (self._stat, self._pressure, self._memory) if file is not None)

    def grab(self, t: float) -> Grab:
        """The system calls of one tick, taken to be of time `t` [monotonic s]; take `t` right before."""
        try:
            stat, pressure, memory = self._usual
            # not their read(): three calls and what they check cost a fifth of a tick
            taken = Grab(
                t, pread(stat.fd, stat.size, 0), pread(pressure.fd, pressure.size, 0), pread(memory.fd, memory.size, 0)
            )
        except (OSError, ValueError):  # one of them is missing, or fails at this tick
            taken = Grab(
                t,
                self._text("cpu", self._stat.read) if self._stat else None,
                self._text("cpu.pressure", self._pressure.read) if self._pressure else None,
                self._text("memory", self._memory.read) if self._memory else None,
            )
        if t >= self._more_due_t:
            self._grab_more(taken)
        return taken

    def _grab_more(self, taken: Grab) -> None:
        """What is not read in every tick, or not on every node."""
        if self._zones is not None and taken.t >= self._zones_due_t:
            self._zones_due_t = taken.t + zoneinfo.EVERY_S - 0.01
            taken.zones = self._text("memory.percpu", self._zones.read_records)
        if self._io_pressure is not None:
            taken.io_pressure = self._text("io.pressure", self._io_pressure.read)
        if self._disks is not None:
            taken.disks = self._text("io.disks", self._disks.read)
        if self._links is not None:
            taken.links = self._parsed("network", self._links.read, taken.t)
        if self._io_pressure is None and self._disks is None and self._links is None:
            self._more_due_t = self._zones_due_t if self._zones is not None else inf

    def interpret(self, taken: Grab) -> Reading:
        """What the texts say."""
        if taken.stat is not None and self._stat is not None and not self._stat.suffices(taken.stat):
            taken.stat, self._stat.size = None, 2 * self._stat.size  # there are more CPUs than there were
        cpu = self._parsed("cpu", stat.parse, taken.stat)
        cpu_pressure = self._parsed("cpu.pressure", pressure.parse, taken.pressure)
        memory = self._parsed("memory", meminfo.parse, taken.memory)
        if taken.zones is not None:
            self._percpu_kb = self._parsed("memory.percpu", zoneinfo.parse, taken.zones)
        io_pressure = self._parsed("io.pressure", pressure.parse, taken.io_pressure)
        # the number of runnable tasks stands at the end of a long text, and is only of use without pressure
        runnable = self._parsed("cpu", stat.parse_runnable, taken.stat) if self._pressure is None and cpu else None
        return Reading(
            taken.t,
            cpu.cores if cpu else None,
            cpu.total if cpu else None,
            cpu.idle if cpu else None,
            cpu_pressure.some_usec if cpu_pressure else None,
            runnable,
            memory.total_kb if memory else None,
            memory.available_kb if memory else None,
            io_pressure.some_usec if io_pressure else None,
            self._parsed("io.disks", self._disks.parse, taken.disks) if self._disks else None,
            taken.links,
            self._lacks,
            self._percpu_kb,
        )

    def read(self, t: float) -> Reading:
        """Both halves at once."""
        return self.interpret(self.grab(t))

    def _text(self, signal: str, read: Callable[[], bytes]) -> bytes | None:
        try:
            return read()
        except OSError:
            self.failed[signal] += 1
            return None

    def _parsed(self, signal: str, parse: Callable[[S], T], text: S | None) -> T | None:
        if text is None:
            return None
        try:
            return parse(text)
        except (OSError, ValueError, Absent):  # Absent: it was there when the agent began
            self.failed[signal] += 1
            return None

    def close(self) -> None:
        for reader in (
            self._stat,
            self._pressure,
            self._memory,
            self._io_pressure,
            self._disks,
            self._links,
            self._zones,
        ):
            if reader is not None:
                reader.close()
