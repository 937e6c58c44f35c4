"""What the view contains about the node: topology, memory, swap; and how it reads cgroup files."""

import os
from pathlib import Path

from carico_agent.plugin_api import Cpu, NodeInfo, parse_cpus, parse_flat

PIECE_BYTES = 65536
FULL_BYTES = 2048


def read_facts(root: str | os.PathLike[str] = "/", cgroup_root: str = "/sys/fs/cgroup") -> NodeInfo:
    """Cores, memory, swap and topology of this node."""
    base = Path(root)
    meminfo = parse_flat(_text(base / "proc/meminfo").replace(":", "").replace(" kB", ""))
    topology = read_topology(base)
    return NodeInfo(
        cores=len(topology) or os.cpu_count() or 1,
        topology=topology,
        memory_total_bytes=meminfo.get("MemTotal", 0) * 1024,
        swap_total_bytes=meminfo.get("SwapTotal", 0) * 1024,
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        cgroup_root=cgroup_root,
        proc_root=str(base / "proc"),
    )


def read_topology(base: Path) -> tuple[Cpu, ...]:
    """Where each online CPU sits. Ids of the kernel are local (a core's to its socket), so each group is named by its
    first CPU; what the kernel does not expose (no L3, no NUMA) falls back to the next larger thing."""
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


def read_file(cgroup: str, key: str) -> str | None:
    """The `read` of a View: absent, ended and unreadable are all None. Plain calls, no identity: plugins look often."""
    try:
        file = os.open(f"{cgroup}/{key}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces = [os.read(file, PIECE_BYTES)]
        while len(pieces[-1]) >= FULL_BYTES:  # seq files come in pages; only memory.stat and cgroup.procs have several
            pieces.append(os.read(file, PIECE_BYTES))
        return b"".join(pieces).decode().rstrip()
    except OSError:  # ENODEV: it died after it was opened
        return None
    finally:
        os.close(file)
