"""Every odd kernel is a row here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.node.sampling import diskstats, link, meminfo, pressure, stat, zoneinfo
from carico_agent.node.sampling.meminfo import Memory
from carico_agent.node.sampling.stat import Stat

GOOD = [
    (stat.parse, b"cpu  1 2 3 4\n", Stat(10, 4, 1)),  # no iowait, no CPU lines
    (stat.parse, b"cpu  1 0 0 4 5 0 0 0 9 9\ncpu0 1\ncpu1 1\nintr 3 cpu\n", Stat(10, 9, 2)),  # guest is in user
    (stat.parse, b"cpu  1 0 0 4 5 0 0 2\ncpu0 1\ncpu7 1\n", Stat(12, 9, 2)),  # steal; CPUs 1 to 6 are offline
    (stat.parse, b"cpu  18446744073709551 0 0 1 1\n", Stat(18446744073709553, 2, 1)),
    (stat.parse_runnable, b"cpu 1\nintr 3 0 0\nprocs_running 17\nprocs_blocked 0\nsoftirq 1\n", 17),
    (meminfo.parse, b"MemTotal: 10 kB\nMemFree: 1 kB\nMemAvailable: 0 kB\n", Memory(10, 0)),
    (
        meminfo.parse,
        b"MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 40 kB\nShmem: 30 kB\n",
        Memory(100, 25, True),
    ),  # before 3.14; tmpfs is not free
    (meminfo.parse, b"MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 40 kB\n", Memory(100, 55, True)),
    (pressure.parse, b"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", pressure.Pressure(0)),  # cpu before 5.13
    (pressure.parse, b"some avg10=99.00 total=18446744073709551615\nfull total=1\n", pressure.Pressure(2**64 - 1)),
    (zoneinfo.parse, b"Node 0, zone DMA\n  pagesets\nNode 1, zone Normal\n", 0),
    (diskstats.parse, b"", {}),
    (diskstats.parse, b" 8 1 sda1 1 2 3 4\n 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n", {"sda": 10}),  # 2.6 partitions
    (diskstats.parse, b" 259 0 nvme0n1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n", {"nvme0n1": 10}),
    (link.parse, b"18446744073709551615\n", 2**64 - 1),
    (link.parse_speed, b"100000\n", 100_000_000_000),
    (link.parse_speed, b"-1\n", None),
    (link.parse_speed, b"0\n", None),
    (link.parse_speed, b"4294967295\n", None),
    (link.parse_speed, b"65535\n", None),
]

BAD = [
    *[
        (parse, text)
        for parse in (stat.parse, stat.parse_runnable, meminfo.parse, pressure.parse, link.parse, link.parse_speed)
        for text in (b"", b"\n", b"garbage", b"\x00\xff\n")
    ],
    (stat.parse, b"cpu  1 2 3 4"),  # cut off: perhaps 4 was 42
    (stat.parse, b"cpu  1 2 3\n"),
    (stat.parse, b"cpu  1 2 x 4\n"),
    (stat.parse, b"cpu  1 -2 3 4\n"),
    (stat.parse, b"cpu  1 2 3 " + b"9" * 30 + b"\n"),
    (stat.parse, b"cpu  1 2 3 " + b"9" * 5000 + b"\n"),
    (stat.parse, b"cpu0 1 2 3 4\n"),
    (stat.parse_runnable, b"cpu 1\nprocs_running 1"),
    (stat.parse_runnable, b"cpu 1\nprocs_running -1\n"),
    (meminfo.parse, b"MemTotal: 0 kB\nMemAvailable: 0 kB\n"),
    (meminfo.parse, b"MemTotal: 10 kB\n"),
    (meminfo.parse, b"MemTotal: 10 kB\nMemAvailable: 7"),
    (meminfo.parse, b"MemTotal: 10 kB\nMemAvailable: -7 kB\n"),
    (meminfo.parse, b"MemTotal: 10 MB\nMemAvailable: 7 MB\n"),
    (pressure.parse, b"some avg10=0.00 avg60=0.00 avg300=0.00 total=12"),
    (pressure.parse, b"some avg10=0.00\nfull total=3\n"),
    (pressure.parse, b"full avg10=0.00 total=3\n"),
    (pressure.parse, b"some total=-3\n"),
    (zoneinfo.parse, b"Node 0, zone DMA\n  count: 1"),
    (zoneinfo.parse, b"Node 0, zone DMA\n  count: -1\n"),
    (zoneinfo.parse, b"Node 0, zone DMA\n  count: 99999999999999999999\n"),
    (diskstats.parse, b"garbage\n"),
    (diskstats.parse, b" 8 0 sda 1 2 3 4 5 6 7 8 9 10"),
    (diskstats.parse, b" 8 0 sda 1 2 3 4 5 6 7 8 9 x 11\n"),
    (link.parse, b"12"),
    (link.parse, b"-3\n"),
]


@pytest.mark.parametrize(("parse", "text", "wanted"), GOOD)
def test_good(parse, text, wanted):
    assert parse(text) == wanted


@pytest.mark.parametrize(("parse", "text"), BAD)
def test_bad_is_a_value_error(parse, text):
    with pytest.raises(ValueError):
        parse(text)


def test_only_wanted_disks():
    text = b" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n 8 16 sdb 1 2 3 4 5 6 7 8 9 20 11\n"
    assert diskstats.parse(text, {"sdb"}) == {"sdb": 20}


PARSERS = [
    stat.parse,
    stat.parse_runnable,
    meminfo.parse,
    pressure.parse,
    zoneinfo.parse,
    diskstats.parse,
    link.parse,
    link.parse_speed,
]
WORDS = [
    b"cpu  ",
    b"cpu0 ",
    b"\nprocs_running ",
    b"MemTotal:",
    b"\nMemAvailable:",
    b"\nMemFree:",
    b" kB\n",
    b"some ",
    b" total=",
    b"\n",
    b" ",
    b"0",
    b"17",
    b"-1",
    b"9" * 25,
    b"8 0 sda 1 2 3 4 5 6 7 8 9 ",
    b"\xff",
    b"1_0",
    b"x",
    b"Node 0",
    b" count:",
]


@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(WORDS), max_size=25).map(b"".join)))
def test_fuzz_only_value_errors(text):
    for parse in PARSERS:
        try:
            parse(text)
        except ValueError:
            continue


@given(st.integers(0, 300))
def test_truncation_never_changes_a_number(length):
    """A text cut anywhere gives the true values or an error, never other ones."""
    wholes = [
        (stat.parse, b"cpu  11 22 33 44 55 66 77 88 0 0\n"),
        (pressure.parse, b"some avg10=1.00 total=4711\n"),
        (meminfo.parse, b"MemTotal:  1000 kB\nMemFree: 123 kB\nMemAvailable:  700 kB\n"),
    ]
    for parse, whole in wholes:
        try:
            assert parse(whole[:length]) == parse(whole)
        except ValueError:
            assert length < len(whole)
