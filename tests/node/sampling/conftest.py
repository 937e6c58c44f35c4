"""A fake root: a folder with the few files of proc/ and sys/ that a node would show."""

from collections.abc import Callable
from pathlib import Path

import pytest

from carico_agent.node.sampling import Root

STAT = (
    "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 50 0 25 400 25 0 0 0 0 0\ncpu1 50 0 25 400 25 0 0 0 0 0\n"
    "intr 12 0 0\nctxt 5\nprocs_running 4\nprocs_blocked 0\n"
)
MEMINFO = "MemTotal:     1000 kB\nMemFree:       100 kB\nMemAvailable:  600 kB\nBuffers:   10 kB\nCached: 700 kB\n"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
ZONEINFO = (
    "Node 0, zone   Normal\n  pages free     25\n  pagesets\n    cpu: 0\n              count:    3\n"
    "              high:     9\n    cpu: 1\n              count:    2\n              high:     9\n"
)
DISKSTATS = "   7 0 loop0 0 0 0 0 0 0 0 0 0 99 0\n 254 0 vda 1 2 3 4 5 6 7 8 0 6692 9 1 2 3 4 5 6\n"

NODE = {
    "proc/stat": STAT,
    "proc/meminfo": MEMINFO,
    "proc/pressure/cpu": PRESSURE,
    "proc/pressure/io": PRESSURE,
    "proc/zoneinfo": ZONEINFO,
    "proc/diskstats": DISKSTATS,
    "sys/block/vda/device/model": "x",
    "sys/block/loop0/size": "0",
    "sys/class/net/eth0/device/vendor": "x",
    "sys/class/net/eth0/speed": "1000\n",
    "sys/class/net/eth0/statistics/rx_bytes": "500\n",
    "sys/class/net/eth0/statistics/tx_bytes": "700\n",
    "sys/class/net/veth1/speed": "10000\n",
}

Fake = Callable[..., Root]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """fake(without=[...], **{path: text}): a whole node, less some files, with others changed."""

    def build(without: tuple[str, ...] = (), changed: dict[str, str] | None = None) -> Root:
        for name, text in {**NODE, **(changed or {})}.items():
            if not any(name.startswith(prefix) for prefix in without):
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_text(text)
        return Root(tmp_path)

    return build
