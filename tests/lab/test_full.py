"""lab.full: its table marks what a service does not bear; a process in a group of its own has the shares given."""

import os
from pathlib import Path

import pytest

from lab.full.__main__ import FullRow, table
from lab.full.node import CgroupPods

ALONE = FullRow(0.0, "loop", False, 0, 5.0, 10.0, 0, 600, 0.0, 0.2)


@pytest.mark.parametrize(
    ("p99_ms", "errors", "marked"), [(19.0, 0, False), (21.0, 0, True), (11.0, 1, True)], ids=["held", "late", "failed"]
)
def test_what_is_marked(p99_ms, errors, marked):
    row = FullRow(1.0, "loop", False, 1, 6.0, p99_ms, errors, 600, 1.0, 0.7)
    lines = table([ALONE, row])
    assert f"| {p99_ms / 10:.1f} |" in lines[-1].replace("**", "")
    assert ("**" in lines[-1]) is marked and "**" not in lines[-2]


@pytest.mark.skipif(os.geteuid() != 0, reason="cgroups need root")
def test_groups_of_our_own_are_removed():
    name = f"carico-test-{os.getpid()}"
    with CgroupPods(name) as groups:
        groups.start("one", ["sleep", "100"], shares=2)
        (pod,) = groups.pods().values()
        found = groups.locator.at(pod.cgroup)
        folder = found.controllers.get("cpu") or found.unified
        shares = Path(folder) / "cpu.shares"
        assert not shares.exists() or shares.read_text() == "2\n"
        assert int((Path(folder) / "cgroup.procs").read_text()) > 0
    assert not Path(folder).exists()
