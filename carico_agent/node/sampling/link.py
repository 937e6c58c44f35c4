"""Physical network links: bytes in each direction and the speed they are measured against.

Physical are links with a /sys/class/net/NAME/device; veth, bridges, bonds and tunnels carry the same bytes again.

Why netlink only names the links, once, and sysfs counts: pyroute2 takes 400 µs for the counters of one link (270 µs
per link in a dump, and a node has a veth per Pod), sysfs 1.6 µs per counter through an open descriptor. Loading
pyroute2 costs 0.3 s and 25 MB, so it happens when the network is enabled and not before. Under any root but "/" netlink
would answer for the wrong network namespace; there sysfs names the links too.

The speed file takes the kernel's rtnl lock: it is read again only every 30 s.
"""

import importlib
import threading
from contextlib import suppress

from carico_agent.lib.trace.reading import Link
from carico_agent.node.sampling.root import Absent, KernelFile, Root

RESCAN_S = 30.0


def parse(data: bytes) -> int:
    r"""A counter of sysfs.

    >>> parse(b"4711\n")
    4711
    """
    if not data.endswith(b"\n"):
        raise ValueError(f"not a counter: {data[:40]!r}")
    value = int(data)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"not a counter: {value}")
    return value


def parse_speed(data: bytes) -> int | None:
    r"""Bits per second; None where the driver does not know (-1, on old kernels 65535 or 2³²−1).

    >>> parse_speed(b"1000\n"), parse_speed(b"-1\n")
    (1000000000, None)
    """
    if not data.endswith(b"\n"):
        raise ValueError(f"not a speed: {data[:40]!r}")
    megabits = int(data)
    return megabits * 1_000_000 if 0 < megabits < (1 << 32) - 1 and megabits != 65535 else None


def netlink_names() -> list[str]:
    """Names of the links in our network namespace; none if netlink does not answer.

    In a thread of its own: under a running event loop pyroute2 refuses to work.
    """
    names: list[str] = []

    def ask() -> None:
        with suppress(ImportError, OSError), importlib.import_module("pyroute2").IPRoute() as netlink:
            names.extend(str(link.get_attr("IFLA_IFNAME")) for link in netlink.get_links())

    asking = threading.Thread(target=ask, name="carico-netlink")
    asking.start()
    asking.join()
    return names


class LinkReader:
    """Counters of the physical links whose speed is known; `unknown` says why the others are left out."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._counters: dict[str, tuple[KernelFile, KernelFile]] = {}
        self._speeds: dict[str, int] = {}
        self._rescan_at_s: float | None = None
        self.unknown: dict[str, str] = {}
        names = (netlink_names() if root.live else []) or root.list("sys/class/net")
        self._names = [name for name in names if root.exists(f"sys/class/net/{name}/device")]
        if not self._names:
            raise Absent("network: no physical link in sys/class/net; run in the host's network namespace")
        self._scan()
        if not self._speeds:
            self.close()
            raise Absent("network: " + "; ".join(self.unknown.values()))

    def _scan(self) -> None:
        for name in self._names:
            speed_bits = self._speed(name)
            if speed_bits is None:
                self._speeds.pop(name, None)
                self.unknown[name] = (
                    f"{name} does not know its speed; set one with "
                    f"`ethtool -s {name} speed 1000 duplex full`, or plug it in, and restart"
                )
            else:
                self._speeds[name] = speed_bits
                self.unknown.pop(name, None)
                self._open(name)

    def _speed(self, name: str) -> int | None:
        try:
            file = KernelFile(self._root.join(f"sys/class/net/{name}/speed"))
            try:
                return parse_speed(file.read())
            finally:
                file.close()
        except (OSError, ValueError):  # EINVAL: the link is down
            return None

    def _open(self, name: str) -> None:
        if name not in self._counters:
            where = f"sys/class/net/{name}/statistics"
            self._counters[name] = (self._root.open(f"{where}/rx_bytes"), self._root.open(f"{where}/tx_bytes"))

    def read(self, t: float) -> dict[str, Link]:
        if self._rescan_at_s is None:
            self._rescan_at_s = t + RESCAN_S
        elif t >= self._rescan_at_s:
            self._rescan_at_s = t + RESCAN_S
            self._scan()
        return {
            name: (parse(self._counters[name][0].read()), parse(self._counters[name][1].read()), speed_bits)
            for name, speed_bits in self._speeds.items()
        }

    def close(self) -> None:
        for files in self._counters.values():
            for file in files:
                file.close()
