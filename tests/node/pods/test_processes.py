"""Processes as Pods: real children of this test, fake /proc for the numbers, fake cgroups for units."""

import asyncio
import os
import subprocess
import sys
import time
from math import isnan
from pathlib import Path

import pytest

from carico_agent.node.pods.commands import find_commands
from carico_agent.node.pods.meter import PodMeters
from carico_agent.node.pods.pods import Selector
from carico_agent.node.pods.process_counters import PAGE_BYTES, TICKS_PER_S, ProcessCounters, parse_stat, start_ticks
from carico_agent.node.pods.processes import MAX_PODS, ProcessRuntime

from .trees import FakeRoot


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


class FakeProc:
    def __init__(self, root):
        self.root = root

    def set(
        self,
        pid,
        ticks=0,
        started=77,
        command="busy",
        parent=1,
        pages=10,
        waited_ns=0,
        state="S",
        children=(),
        line=(),
    ):
        folder = self.root / f"proc/{pid}"
        task = folder / f"task/{pid}"
        task.mkdir(parents=True, exist_ok=True)
        fields = f"{state} {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {started} 0 0"
        (folder / "stat").write_text(f"{pid} ({command}) {fields}\n")
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in line))
        (folder / "statm").write_text(f"99 {pages} 1 1 0 1 0\n")
        (folder / "schedstat").write_text(f"{ticks * 1_000_000_000 // TICKS_PER_S} {waited_ns} 1\n")
        (task / "children").write_text(" ".join(map(str, children)))


@pytest.fixture
def fake(tmp_path):
    fake = FakeProc(tmp_path)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu 1 2 3 4\nbtime 1700000000\n")
    return fake


def test_a_child_is_a_pod_until_it_ends(child):
    runtime, events = ProcessRuntime(), []
    runtime.listen(events.append)
    key = runtime.register(child.pid, "busy-3")
    assert (runtime.count, runtime.churn_until_s > 0) == (1, True)
    pod = runtime.pods[key]
    assert (pod.name, pod.workload, pod.pids, pod.started_s > 1e9) == ("busy-3", "processes/busy", (child.pid,), True)
    assert runtime.read_usage(1.0)[key].memory_current > 0
    runtime.scan()
    assert runtime.count == 1
    child.kill()
    deadline_s = time.monotonic() + 60
    while start_ticks(child.pid) is not None:  # a zombie has ended, though nobody waited for it
        assert time.monotonic() < deadline_s
    runtime.scan()
    assert (runtime.count, dict(runtime.pods), dict(runtime.read_usage(2.0))) == (0, {}, {})
    assert [(event.topic, event.count) for event in events] == [("/processes/create", 1), ("/processes/delete", 0)]


def test_unregister_and_nobody(child):
    runtime = ProcessRuntime()
    key = runtime.register(child.pid, "busy", workload="demo/busy")
    assert runtime.pods[key].workload == "demo/busy"
    runtime.unregister(key)
    runtime.unregister(key)
    assert runtime.count == 0
    with pytest.raises(ProcessLookupError):
        runtime.register(1 << 30, "x")


def test_a_pid_used_again_is_another_process(fake):
    fake.set(5, started=77)
    runtime = ProcessRuntime(root=fake.root)
    runtime.register(5, "one")
    fake.set(5, started=78)
    runtime.scan()
    assert runtime.count == 0
    counters = ProcessCounters(5, 77, str(fake.root / "proc"))
    with pytest.raises(OSError):
        counters.read(1.0)
    counters.close()


def test_bounded(fake):
    runtime = ProcessRuntime(root=fake.root)
    for pid in range(2, MAX_PODS + 2):
        fake.set(pid)
        runtime._registered[f"{pid}-77"] = runtime._pod(pid, 77, "x")
    fake.set(1)
    with pytest.raises(ValueError, match="more than"):
        runtime.register(1, "x")


def test_counters_of_a_family(fake):
    fake.set(5, ticks=TICKS_PER_S, pages=10, children=[6])
    fake.set(6, ticks=2 * TICKS_PER_S, pages=5)
    counters = ProcessCounters(5, 77, str(fake.root / "proc"))
    first = counters.read(0.0)
    assert (first.cpu_usec, first.memory_bytes, first.threads) == (3_000_000, 15.0 * PAGE_BYTES, None)
    fake.set(5, ticks=TICKS_PER_S, waited_ns=4_000_000, children=[6])
    fake.set(6, ticks=3 * TICKS_PER_S, waited_ns=1_000_000)
    second = counters.read(1.0)
    assert second.cpu_usec == 4_000_000
    assert sorted(one.waited_s for one in second.threads) == [0.001, 0.004]
    fake.set(5, ticks=TICKS_PER_S, waited_ns=4_000_000)  # the child has gone and was not waited for
    assert counters.read(2.0).cpu_usec == 4_000_000
    counters.close()


def test_measured_by_the_meter(fake):
    fake.set(5)
    runtime = ProcessRuntime(root=fake.root)
    runtime.register(5, "busy-1")
    meters = PodMeters(runtime.open_pod())
    meters.tick(0.0, runtime.pods)
    fake.set(5, ticks=TICKS_PER_S // 2 * 2, waited_ns=1_000_000_000)
    (found,) = meters.tick(2.0, runtime.pods)
    wanted = found.demand()
    assert wanted.cpu_cores == pytest.approx(1.0) and wanted.cpu_usage_cores == pytest.approx(0.5)
    assert (found.pod.workload, isnan(wanted.io_ratio)) == ("processes/busy", True)
    fake.set(5, started=78)
    meters.tick(8.0, runtime.pods)
    assert meters.failed == 0
    meters.close()


def test_commands(fake):
    fake.set(5, command="postgres")
    fake.set(6, command="postgres", parent=5)
    fake.set(7, command="postgres: (x) y", parent=5)
    fake.set(8, command="bash")
    fake.set(9, command="postgres", state="Z")
    runtime = ProcessRuntime(commands=["postgres*"], root=fake.root)
    runtime.scan()
    assert [pod.pids for pod in runtime.pods.values()] == [(5,)]
    assert runtime.churn_until_s == 0.0  # what is there at the start is no churn
    fake.set(5, started=99)
    runtime.scan()
    assert runtime.count == 0 and runtime.churn_until_s > 0


def test_commands_by_their_line(fake):
    fake.set(5, command="python3", line=["/usr/bin/python3", "train.py", "--epochs", "9"])
    fake.set(6, command="python3", line=["python3", "train.py"])
    fake.set(7, command="python3", line=["python3", "serve.py"])
    fake.set(8, command="python3", line=["python3", "train.py"], parent=9)
    fake.set(9, command="sh", line=["sh", "-c", "python3 train.py"], parent=6)  # started by 6: part of it
    fake.set(2, command="kthreadd")
    (fake.root / "proc/10").mkdir()  # has just ended
    runtime = ProcessRuntime(commands=["postgres", "python3 train.py*"], root=fake.root)
    runtime.scan()
    assert sorted(pod.pids for pod in runtime.pods.values()) == [(5,), (6,)]
    assert {pod.name for pod in runtime.pods.values()} == {"python3-5", "python3-6"}
    assert {pod.workload for pod in runtime.pods.values()} == {"processes/python3-train.py"}


def test_the_agent_is_no_pod_of_its_own(child):
    found = {pid for pid, _, _ in find_commands([Path(f"/proc/{child.pid}/comm").read_text().strip()])}
    assert os.getpid() not in found
    assert child.pid in found


def test_units_in_slices_within_slices(tmp_path):
    tree = FakeRoot(tmp_path, "v2")
    mine = "/user.slice/user-1000.slice/user@1000.service/app.slice/train.service"
    paths = {"/system.slice/system-worker.slice/worker@1.service", mine, "/batch.slice/run-7.scope"}
    for path in (*paths, "/kubepods.slice/worker@9.service", "/system.slice/worker@2.mount"):
        tree.group(path, usage_usec=5000)
    runtime = ProcessRuntime(units=["worker@*", "train.service", "run-*.scope"], root=tmp_path)
    runtime.scan()
    assert runtime.pods.keys() == paths


@pytest.mark.parametrize("workload", ["v2", "v1", "hybrid"])
def test_units(tmp_path, workload):
    tree = FakeRoot(tmp_path, workload)
    for name in ("nginx.service", "worker@1.service", "worker@2.service", "ssh.service"):
        tree.group(f"/system.slice/{name}", usage_usec=5000)
    selector = Selector(skip_names=("worker@2",))
    runtime = ProcessRuntime(units=["nginx", "worker@*"], root=tmp_path, selector=selector)
    runtime.scan()
    assert {pod.name: pod.workload for pod in runtime.pods.values()} == {
        "nginx": "processes/nginx",
        "worker@1": "processes/worker",
        "worker@2": "processes/worker",
    }
    assert runtime.count == 2
    assert runtime.read_usage(1.0)["/system.slice/nginx.service"].cpu_usage_usec == 5000
    before = runtime.pods
    runtime.scan()
    assert runtime.pods is before


def test_run_looks_by_itself(fake):
    fake.set(5, command="postgres")
    runtime = ProcessRuntime(commands=["postgres"], root=fake.root)

    async def once():
        task = asyncio.create_task(runtime.run())
        async with asyncio.timeout(60):
            while not runtime.count:
                await asyncio.sleep(0)
        task.cancel()

    asyncio.run(once())
    assert runtime.count == 1
    runtime.tidy_usage(unused=True)


@pytest.mark.parametrize("data", [b"", b"1 (x", b"1 (x) S 1 2 3", b")" * 50])
def test_bad_stat(data):
    with pytest.raises(ValueError):
        parse_stat(data)
