"""Every parser of kernel files against 10,000 damaged ones each, and as many in all made by hypothesis, which makes a
failure small: a value or ValueError, nothing else."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carico_agent import plugin_api
from carico_agent.node.pods import cgroup, cgroups, container_names, process_counters, run_delay
from carico_agent.node.sampling import diskstats, link, meminfo, pressure, stat, zoneinfo
from carico_agent.plugin_api import formats
from carico_agent.progress import table as progress
from tests.faults import damage
from tests.faults.tally import counted

PSI = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=4711\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=17\n"
STAT = (
    b"cpu  5 0 3 80 10 0 1 1 0 0\ncpu0 5 0 3 80 10 0 1 1 0 0\nintr 9 0 1\nctxt 7\nbtime 1700000000\n"
    b"processes 9\nprocs_running 3\nprocs_blocked 0\n"
)
CPU_STAT = b"usage_usec 7\nuser_usec 4\nsystem_usec 3\nnr_periods 3\nnr_throttled 1\nthrottled_usec 5000\nnr_bursts 0\n"
DISKS = b" 254 0 vda 30004 7577 2101866 9293 8963 22194 2309408 8090 0 6692 17859\n   8 1 sda1 1 2 3 4\n"
MEMINFO = b"MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  700 kB\nBuffers: 1 kB\nCached: 2 kB\nShmem: 1 kB\n"


def text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    """Kernel files are bytes; some parsers take what `open` makes of them."""
    return lambda data: parse(data.decode("utf-8", "surrogateescape"))


def report(data: bytes) -> object:
    """A job's report, as the progress socket reads it: an object, or refused before."""
    body = json.loads(data)
    return progress.parse(body) if isinstance(body, dict) else None


PARSERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "node.sampling.stat.parse": (stat.parse, STAT),
    "node.sampling.stat.parse_runnable": (stat.parse_runnable, STAT),
    "node.sampling.meminfo.parse": (meminfo.parse, MEMINFO),
    "node.sampling.pressure.parse": (pressure.parse, PSI),
    "node.sampling.zoneinfo.parse": (zoneinfo.parse, b"Node 0, zone Normal\n  cpu: 0\n    count: 7\n    high: 9\n"),
    "node.sampling.diskstats.parse": (diskstats.parse, DISKS),
    "node.sampling.link.parse": (link.parse, b"4711\n"),
    "node.sampling.link.parse_speed": (link.parse_speed, b"1000\n"),
    "node.pods.cgroup.parse_cpu_stat": (cgroup.parse_cpu_stat, CPU_STAT),
    "node.pods.cgroups.parse": (text(cgroups.parse), b"4:memory:/docker/ab\n1:cpu,cpuacct:/docker/ab\n0::/x:y\n"),
    "node.pods.cgroups.parse_started": (
        text(cgroups.parse_started),
        b"12 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 0 1 0 0 20 0 1 0 4242 1 2 3\n",
    ),
    "node.pods.cgroup.parse_inactive_file": (cgroup.parse_inactive_file, b"anon 1\ninactive_file 7\n"),
    "node.pods.cgroup.parse_quota": (cgroup.parse_quota, b"20000 100000\n"),
    "node.pods.cgroup.parse_io_bytes": (cgroup.parse_io_bytes, b"8:0 rbytes=10 wbytes=5 rios=1 wios=1\n"),
    "node.pods.cgroup.parse_cpuacct_usage": (cgroup.parse_cpuacct_usage, b"2500000000\n"),
    "progress.table.parse": (report, b'{"done": 120, "total": 5000, "trainerStatus": {"progressPercentage": 45}}'),
    "node.pods.cgroup.parse_memory_limit": (cgroup.parse_memory_limit, b"1048576"),
    "node.pods.container_names.parse_record": (
        container_names.parse_record,
        b'{"Name": "/web-1", "Config": {"Image": "shop/web:2", "Labels": {"a": "b"}}}',
    ),
    "node.pods.run_delay.parse": (run_delay.parse, b"152535 4473774 2\n"),
    "node.pods.process_counters.parse_stat": (
        process_counters.parse_stat,
        b"12 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 0 1 0 0 20 0 1 0 4242 1 2 3\n",
    ),
    "plugin_api.formats.parse_flat": (text(plugin_api.parse_flat), CPU_STAT),
    "plugin_api.formats.parse_cpus": (text(plugin_api.parse_cpus), b"0-2,5\n"),
    "plugin_api.formats.parse_quantity": (text(plugin_api.parse_quantity), b"256Mi"),
    "plugin_api.formats.parse_stall": (text(plugin_api.parse_stall), PSI),
    "plugin_api.formats.parse_stall_total": (formats.parse_stall_total, PSI),
}
CASES = 10_000 // len(PARSERS) + 1

ODD = st.sampled_from(damage.ODD)


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """A good file with some of it cut, doubled or replaced."""
    data = good
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 12)))
        data = data[:start] + draw(st.one_of(ODD, st.binary(max_size=8), st.just(data[start:end] * 2))) + data[end:]
    return data


@pytest.mark.long
@pytest.mark.parametrize("name", PARSERS)
def test_a_value_or_a_value_error(name: str) -> None:
    parse, good = PARSERS[name]
    parse(good)

    @settings(max_examples=CASES, suppress_health_check=list(HealthCheck), database=None)
    @given(st.one_of(damaged(good), st.binary(max_size=200), st.integers(0, len(good)).map(lambda end: good[:end])))
    def fuzz(data: bytes) -> None:
        with suppress(ValueError):
            parse(data)

    fuzz()


@pytest.mark.parametrize("name", PARSERS)
def test_10_000_damaged_ones(name: str) -> None:
    parse, good = PARSERS[name]
    for data in counted(damage.damaged([good]), damage.CASES):
        try:
            parse(data)
        except ValueError:
            continue
        except Exception as error:
            raise AssertionError(f"{name}({data!r})") from error


def test_no_parser_is_forgotten() -> None:
    """Whatever is called parse… in a module that reads the kernel stands above."""
    tree = Path(__file__).parents[2] / "carico_agent"
    found = set()
    for path in [
        *tree.glob("node/sampling/*.py"),
        *tree.glob("node/pods/*.py"),
        tree / "progress/table.py",
        tree / "node/plugin_host/facts.py",
        tree / "plugin_api/formats.py",
    ]:
        module = str(path.relative_to(tree).with_suffix("")).replace("/", ".")
        found |= {f"{module}.{name}" for name in re.findall(r"^def (parse\w*)\(", path.read_text(), re.MULTILINE)}
    assert found == set(PARSERS)
    assert CASES * len(PARSERS) >= 10_000
