import errno
import math
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from carico_agent.node.sampling import NodeReader, Root, cgroup_mode, derive
from carico_agent.node.sampling import link as link_module
from carico_agent.node.sampling import pressure as pressure_module
from carico_agent.node.sampling.root import Absent, KernelFile, absence

from .conftest import PRESSURE, STAT, ZONEINFO


def test_a_whole_node(fake):
    reader = NodeReader(fake(), io=True, network=True)
    reading = reader.read(1.5)
    assert reader.resources == ("cpu", "memory", "io", "network")
    assert (reader.cores, reader.absent, dict(reader.failed)) == (2, {}, {})
    assert (reading.t, reading.cores, reading.cpu_total, reading.cpu_idle) == (1.5, 2, 1000, 850)
    assert (reading.cpu_pressure_usec, reading.io_pressure_usec, reading.runnable) == (1000, 1000, None)
    assert (reading.memory_total_kb, reading.memory_available_kb) == (1000, 600)
    assert reading.disks == {"vda": 6692}  # not the loop device
    assert reading.links == {"eth0": (500, 700, 10**9)}  # not the veth
    reader.close()


def test_default_reads_neither_disks_nor_links(fake):
    reader = NodeReader(fake(without=("sys", "proc/diskstats", "proc/pressure/io")))
    assert reader.resources == ("cpu", "memory") and reader.absent == {}
    assert reader.read(0.0).disks is None


def test_where_a_sandbox_forbids_netlink_sysfs_names_the_links(monkeypatch):
    """As the shipped unit does (RestrictAddressFamilies): the network signal is there all the same."""
    real = socket.socket

    class Sandboxed(real):
        def __init__(self, family=-1, *rest, **more):
            if family == socket.AF_NETLINK:
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
            super().__init__(family, *rest, **more)

    assert "lo" in link_module.netlink_names()
    monkeypatch.setattr(socket, "socket", Sandboxed)
    assert link_module.netlink_names() == []


def test_pyroute2_is_loaded_only_for_the_network():
    code = (
        "import sys; from carico_agent.node.sampling import NodeReader, Root; NodeReader(Root('/'), io=True);"
        "assert not any(name.startswith('pyroute2') for name in sys.modules)"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


@pytest.mark.parametrize(
    ("without", "changed", "signal", "says"),
    [
        (("proc/pressure/cpu",), {}, "cpu.pressure", "cpu.pressure: boot with psi=1"),
        (("proc/pressure/io",), {}, "io.pressure", "io.pressure: boot with psi=1"),
        (("proc/stat",), {}, "cpu", "set node.root"),
        (("proc/meminfo",), {}, "memory", "set node.root"),
        (("proc/diskstats",), {}, "io.disks", "mount proc"),
        (("sys/block",), {}, "io.disks", "mount sysfs"),
        (("sys/class/net/eth0",), {}, "network", "host's network namespace"),
        ((), {"sys/class/net/eth0/speed": "-1\n"}, "network", "ethtool -s eth0 speed 1000"),
        (("sys/class/net/eth0/speed",), {}, "network", "ethtool -s eth0"),
        (
            (),
            {"proc/meminfo": "MemTotal: 9 kB\nMemFree: 1 kB\nBuffers: 1 kB\nCached: 3 kB\nShmem: 1 kB\n"},
            "memory.available",
            "Linux 3.14",
        ),
    ],
)
def test_absent_is_named_and_not_fatal(fake, without, changed, signal, says):
    reader = NodeReader(fake(without, changed), io=True, network=True)
    assert list(reader.absent) == [signal] and says in reader.absent[signal]
    before = reader.read(0.0)
    assert before.lacks == (signal,)
    assert len(derive(before, reader.read(1.0), reader.resources).values) == 4
    assert dict(reader.failed) == {}  # absent is not failed, and is not tried again


def test_an_empty_root_still_answers(tmp_path):
    reader = NodeReader(Root(tmp_path), io=True, network=True)
    usage = derive(reader.read(0.0), reader.read(1.0), reader.resources)
    assert all(map(math.isnan, usage.values)) and reader.cores >= 1
    assert set(reader.absent) == {
        "cpu",
        "cpu.pressure",
        "memory",
        "memory.percpu",
        "io.pressure",
        "io.disks",
        "network",
    }
    reader.close()


def test_without_psi_runnable_is_read(fake):
    reader = NodeReader(fake(without=("proc/pressure",)))
    assert "runnable" in reader.absent["cpu.pressure"]
    assert reader.read(0.0).runnable == 4


def test_one_slow_link_does_not_hide_the_other(fake):
    changed = {"sys/class/net/eth1/device/vendor": "x", "sys/class/net/eth1/speed": "-1\n"}
    reader = NodeReader(fake(changed=changed), network=True)
    assert list(reader.absent) == ["network.eth1"] and list(reader.read(0.0).links) == ["eth0"]


def test_speed_is_read_again_after_a_while(fake, tmp_path):
    reader = NodeReader(fake(), network=True)
    (tmp_path / "sys/class/net/eth0/speed").write_text("10000\n")
    assert [reader.read(t).links["eth0"][2] for t in (0.0, 29.0, 30.0)] == [10**9, 10**9, 10**10]


def test_failed_is_counted_and_tried_again(fake, tmp_path):
    reader = NodeReader(fake())
    stat = tmp_path / "proc/stat"
    stat.write_text("garbage")
    assert reader.read(0.0).cpu_total is None and reader.read(1.0).memory_total_kb == 1000
    stat.write_text(STAT)
    assert reader.read(2.0).cpu_total == 1000
    assert dict(reader.failed) == {"cpu": 2} and reader.absent == {}


@pytest.mark.parametrize(("code", "says"), [(1, "no permission"), (13, "no permission"), (95, "psi=1"), (2, "psi=1")])
def test_errors_that_mean_absent(monkeypatch, fake, code, says):
    def refuse(self):
        raise OSError(code, os.strerror(code))

    root = fake()
    monkeypatch.setattr(pressure_module.Root, "open", lambda *_: type("Refusing", (), {"read": refuse})())
    with pytest.raises(Absent, match="cpu.pressure.*" + says):
        pressure_module.open_file(root, "cpu")


def test_a_grab_is_understood_later(fake):
    """What the kernel showed at the tick counts, not what it shows when the bytes are looked at."""
    root = fake()
    reader = NodeReader(root, io=True, network=True)
    at_once, taken = reader.read(1.0), reader.grab(1.0)
    for name in ("proc/stat", "proc/meminfo", "proc/pressure/cpu", "proc/diskstats"):
        (Path(root.path) / name).write_text("nothing of the workload\n")
    assert reader.interpret(taken) == at_once
    assert reader.read(2.0).cpu_total is None and reader.failed["cpu"] == 1


def test_memory_in_the_lists_of_the_cpus_is_free(fake, tmp_path):
    """Of 1000 kB 600 are available, and 5 pages more; they are counted anew once a second."""
    reader = NodeReader(fake())
    first = reader.read(0.0)
    (tmp_path / "proc/zoneinfo").write_text(ZONEINFO.replace("count:    3", "count:    8"))
    page_kb = os.sysconf("SC_PAGE_SIZE") // 1024
    used = [derive(first, reader.read(t), ("memory",)).values[0] for t in (0.5, 1.0)]
    assert used == pytest.approx([0.4 - 5 * page_kb / 1000, 0.4 - 10 * page_kb / 1000])
    (tmp_path / "proc/zoneinfo").unlink()
    assert "memory.percpu" in NodeReader(Root(tmp_path)).absent


def test_other_errors_are_not_absence():
    error = OSError(5, "I/O error")
    assert absence(error, "x") is error


def test_kernel_file_grows_and_reopens(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(b"x" * 10_000)
    file = KernelFile(str(path), size=16)
    assert len(file.read()) == 10_000 == len(file.read_records())
    file.close()
    file.close()
    assert len(file.read()) == 10_000
    path.write_bytes(PRESSURE.encode())
    assert file.read() == PRESSURE.encode()
    file.close()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        file.read()


def test_no_descriptor_is_left_behind(fake):
    root = fake()
    before = len(os.listdir("/proc/self/fd"))
    reader = NodeReader(root, io=True, network=True)
    reader.read(0.0)
    assert len(os.listdir("/proc/self/fd")) > before
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("files", "mode"),
    [
        ((), "none"),
        (("cgroup.controllers",), "v2"),
        (("cpu/tasks", "unified/cgroup.controllers"), "hybrid"),
        (("cpu,cpuacct/tasks", "memory/tasks"), "v1"),
        (("systemd/tasks",), "v1"),
    ],
)
def test_cgroup_mode(tmp_path, files, mode):
    for name in files:
        (tmp_path / "sys/fs/cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / name).write_text("")
    assert cgroup_mode(Root(tmp_path)) == mode


async def test_this_machine():
    """The real kernel, once; under a running event loop, as the agent has one."""
    reader = NodeReader(Root("/"), io=True, network=True)
    before = reader.read(time.monotonic())
    time.sleep(0.1)
    usage = derive(before, reader.read(time.monotonic()), reader.resources)
    assert reader.cores == os.sysconf("SC_NPROCESSORS_ONLN") and dict(reader.failed) == {}
    assert 0 <= usage.detail["cpu_utilisation"] <= 1
    assert 0 <= usage.values[0] <= 1 and 0 <= usage.values[1] <= 1
    assert math.isnan(usage.values[3]) == ("network" in reader.absent)
    reader.close()


def test_what_follows_is_not_read(tmp_path):
    path = tmp_path / "stat"
    path.write_bytes(b"cpu  1 2 3 4\ncpu0 1 2 3 4\nintr " + b"0 " * 5000)
    file = KernelFile(str(path), size=16, until=b"\nintr")
    assert file.read() == path.read_bytes()[: file.size] and file.size == 32
    file.close()


def test_more_cpus_than_before_are_unknown_for_one_tick(fake, tmp_path):
    reader = NodeReader(fake())
    line = "cpu{} 10 0 10 80 0 0 0 0 0 0\n"
    (tmp_path / "proc/stat").write_text("".join(line.format(n) for n in (" ", *range(100))) + "intr 5\n")
    cores = [reader.read(t).cores for t in range(6)]
    assert cores[0] is None and cores[-1] == 100
    assert set(cores) == {None, 100}
