"""What the view tells about the node and each cgroup: topology, memory, counters. Parsing is apart from reading."""

import os
from pathlib import Path

from carico_agent.plugin_api import Cpu, NodeFacts, Reader, Stall, Usage, parse_cpus, parse_flat
from carico_agent.plugin_host.cgroupfs import CgroupFiles, Gone

PRESSURES = ("cpu", "memory", "io")


def read_facts(root: str | os.PathLike[str] = "/", cgroup_root: str = "/sys/fs/cgroup") -> NodeFacts:
    """Cores, memory, swap and topology of this node."""
    base = Path(root)
    meminfo = parse_flat(_text(base / "proc/meminfo").replace(":", "").replace(" kB", ""))
    topology = read_topology(base)
    return NodeFacts(cores=len(topology) or os.cpu_count() or 1, topology=topology,
                     memory_total_bytes=meminfo.get("MemTotal", 0) * 1024,
                     swap_total_bytes=meminfo.get("SwapTotal", 0) * 1024,
                     page_bytes=os.sysconf("SC_PAGE_SIZE"), cgroup_root=cgroup_root,
                     proc_root=str(base / "proc"))


def read_topology(base: Path) -> tuple[Cpu, ...]:
    """Where each online CPU sits. Ids of the kernel are local (a core's to its socket), so each group is named by its
    first CPU; what the kernel does not tell (no L3, no NUMA) falls back to the next larger thing."""
    cpus = base / "sys/devices/system/cpu"
    numa_of = _numa_nodes(base)
    found = []
    for cpu in sorted(parse_cpus(_text(cpus / "online"))):
        folder = cpus / f"cpu{cpu}"
        socket = _first(folder / "topology/package_cpus_list", _first(folder / "topology/core_siblings_list", 0))
        core = _first(folder / "topology/core_cpus_list", _first(folder / "topology/thread_siblings_list", cpu))
        numa = numa_of.get(cpu, socket)
        found.append(Cpu(cpu, core, _first(folder / "cache/index3/shared_cpu_list", numa), numa, socket))
    return tuple(found)


def _numa_nodes(base: Path) -> dict[int, int]:
    folder = base / "sys/devices/system/node"
    names = [name for name in (os.listdir(folder) if folder.is_dir() else []) if name[4:].isdigit()]
    return {cpu: int(name[4:]) for name in names for cpu in parse_cpus(_text(folder / name / "cpulist"))}


def _first(path: Path, otherwise: int) -> int:
    return min(parse_cpus(_text(path)), default=otherwise)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def make_reader(files: CgroupFiles | None = None) -> Reader:
    """The `read` of a View: absent, ended and unreadable are all None."""
    source = files or CgroupFiles()

    def read(cgroup: str, key: str) -> str | None:
        try:
            return source.read(cgroup, None, key)
        except (OSError, Gone):
            return None

    return read


def read_usage(read: Reader, cgroup: str) -> Usage:
    """The counters of one cgroup: five small files. For 110 Pods once a second, not ten times."""
    stat, current = parse_flat(read(cgroup, "cpu.stat")), read(cgroup, "memory.current")
    stalls = {name: parse_pressure(text) for name in PRESSURES if (text := read(cgroup, f"{name}.pressure"))}
    return Usage(stat.get("usage_usec"), stat.get("nr_periods"), stat.get("nr_throttled"), stat.get("throttled_usec"),
                 int(current) if current and current.isdigit() else None, stalls)


def parse_pressure(text: str) -> Stall:
    """Totals of a PSI file; `full` is missing for cpu before Linux 5.13.

    >>> parse_pressure("some avg10=0.00 avg60=0.00 total=12\\nfull avg10=0.00 avg60=0.00 total=7")
    Stall(some_usec=12, full_usec=7)
    """
    totals = {line.split()[0]: int(line.rpartition("total=")[2]) for line in text.splitlines() if "total=" in line}
    return Stall(totals.get("some", 0), totals.get("full", 0))
