"""One reader of cgroups: the same fields from v1, v2 and hybrid trees, kept open or opened for one read."""

import os
from math import inf, isnan
from pathlib import Path

import pytest

from carico_agent.node.pods.cgroup import (
    CPU_PRESSURE,
    CPU_STAT,
    CPU_USAGE,
    MEMORY_CURRENT,
    Cgroup,
    CpuStat,
    cpu_seconds,
    in_folder,
)
from carico_agent.node.pods.cgroups import Group

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=42\n"
V2 = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\nsystem_usec 1\nnr_periods 3\nnr_throttled 1\nthrottled_usec 5\n",
    "cpu.max": "20000 100000\n",
    "memory.current": "4096\n",
    "memory.max": "max\n",
    "memory.events": "low 0\noom_kill 2\n",
    "cpu.pressure": PRESSURE,
}
V1 = {
    "cpuacct": {"cpuacct.usage": "2500000000\n"},
    "cpu": {
        "cpu.stat": "nr_periods 3\nnr_throttled 1\nthrottled_time 5000\n",
        "cpu.cfs_quota_us": "20000\n",
        "cpu.cfs_period_us": "100000\n",
    },
    "memory": {
        "memory.usage_in_bytes": "4096\n",
        "memory.limit_in_bytes": "9223372036854771712\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    },
}


def write(folder: Path, files: dict[str, str]) -> str:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return str(folder)


def tree(root: Path, mode: str) -> Group:
    unified = write(root / "unified", V2 if mode == "v2" else {"cpu.pressure": PRESSURE}) if mode != "v1" else ""
    controllers = {} if mode == "v2" else {name: write(root / name, files) for name, files in V1.items()}
    return Group("/x", 7, unified, controllers)


@pytest.mark.parametrize("kept", [(), (CPU_USAGE, CPU_STAT, MEMORY_CURRENT, CPU_PRESSURE)])
@pytest.mark.parametrize("mode", ["v1", "v2", "hybrid"])
def test_the_same_fields_from_every_tree(tmp_path: Path, mode: str, kept: tuple) -> None:
    group = Cgroup(tree(tmp_path, mode), *kept)
    assert group.cpu_usec() == 2_500_000
    assert group.cpu_stat() == CpuStat(2_500_000, 3, 1, 5)
    assert (group.throttled_usec(), group.quota_cores(), group.memory_current()) == (5, 0.2, 4096)
    assert (group.oom_kills(), group.memory_limit_bytes()) == (2, inf)
    assert group.stall_usec(CPU_PRESSURE) == (None if mode == "v1" else 42)
    group.close()


def test_one_descriptor_for_a_file_that_has_two_fields(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    group = Cgroup(tree(tmp_path, "v2"), CPU_USAGE, CPU_STAT, MEMORY_CURRENT)
    assert len(group.descriptors) == 2
    group.close()
    assert set(os.listdir("/proc/self/fd")) == before and group.read(CPU_USAGE) == b""


def test_a_group_that_is_gone_is_not_one_without_the_controller(tmp_path: Path) -> None:
    group = Cgroup(in_folder(str(tmp_path / "nowhere"), v2=True))
    with pytest.raises(FileNotFoundError):
        group.cpu_usec()
    assert (group.oom_kills(), group.memory_limit_bytes(), group.quota_cores()) == (0, inf, inf)
    assert Cgroup(in_folder(str(tmp_path), v2=False)).cpu_usec() is None


def test_cpu_seconds_of_several_groups_or_unknown(tmp_path: Path) -> None:
    one, other = tree(tmp_path / "a", "v1"), tree(tmp_path / "b", "v2")
    assert cpu_seconds([one, other]) == 5.0
    assert isnan(cpu_seconds([])) and isnan(cpu_seconds([one, in_folder("/nowhere", v2=True)]))
    (tmp_path / "b/unified/cpu.stat").write_text("usage_usec 1" + "0" * 400 + "\n")
    assert isnan(cpu_seconds([other]))
