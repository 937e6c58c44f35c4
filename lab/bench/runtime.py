"""What the runtime package costs and how fast it is. Prints a table; asserts nothing.

    python -m lab.bench.runtime [latency] [usage] [scan] [idle N]

latency: containerd's own time stamp of an event -> our count, on a private containerd.
usage:   one reading of every Pod, with real (empty) cgroups; kept descriptors against opening anew.
scan:    one scan of the cgroup tree with as many Pod directories.
idle N:  CPU and resident memory of a process that watches N idle containers and reads their usage at 1 Hz.
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from carico_agent import settings
from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.events import Event
from carico_agent.node.pods.pods import Pod
from carico_agent.node.pods.tree import Scanner
from carico_agent.node.pods.usage import PodFiles, UsageReader
from carico_agent.node.pods.watch import discover
from lab.bench.table import Row, missing
from lab.support.containerd import PrivateContainerd
from lab.support.containerd import missing as containerd_missing

PODS = 110
THIS = [sys.executable, "-m", "lab.bench.runtime"]


def quantiles_ms(values_s: list[float]) -> dict[str, float]:
    ordered = sorted(values_s)
    return {
        name: round(ordered[min(int(q * len(ordered)), len(ordered) - 1)] * 1e3, 2)
        for name, q in (("p50", 0.5), ("p99", 0.99), ("most", 1.0))
    }


async def latency(private: PrivateContainerd, containers: int = 100) -> tuple[list[float], list[float]]:
    """For every start and exit of `containers` lives: seconds from containerd's time stamp to the updated count, and
    how much of it passed in our own code after the event had come out of grpc."""
    runtime = discover(settings.parse({"containerd": {"socket": private.socket}}))
    found: list[float] = []
    own: list[float] = []
    last = 0

    def received(event: Event) -> None:
        nonlocal last
        now_s = time.time()
        if runtime.count != last:
            found.append(now_s - event.time_s)
            own.append(time.monotonic() - event.t)
        last = runtime.count

    runtime.listen(received)
    task = asyncio.create_task(runtime.run())
    while runtime.source != "containerd":
        await asyncio.sleep(0.01)
    # from another process: starting processes holds the interpreter lock of the one that is measured
    command = [*THIS, "_load", str(private.folder), private.cgroup, str(containers)]
    await (await asyncio.create_subprocess_exec(*command)).wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found, own


@contextmanager
def empty_groups(count: int) -> Iterator[tuple[Locator, dict[str, Pod]]]:
    """Real cgroups without processes, named like a kubelet's; removed afterwards."""
    locator = Locator(Path("/"))
    mounts = dict.fromkeys([*locator.layout.controllers.values(), *filter(None, [locator.layout.unified])])
    top = f"kubepods-carico-{os.getpid()}"
    paths = [f"/{top}/pod{n:08x}-0000-0000-0000-000000000000" for n in range(count)]
    folders = [Path(f"/{mount}/{top}") for mount in mounts]
    try:
        for mount in mounts:
            for path in paths:
                Path(f"/{mount}{path}").mkdir(parents=True)
        groups = {path: group for path in paths if (group := locator.at(path))}
        yield locator, {path: Pod(path, path, "", cgroup=path, inode=group.inode) for path, group in groups.items()}
    finally:
        for folder in folders:
            for child in folder.glob("pod*"):
                child.rmdir()
            folder.rmdir()


def usage(count: int = PODS) -> dict[str, float]:
    """µs per Pod."""
    with empty_groups(count) as (locator, pods):
        reader = UsageReader(locator)
        reader.read(pods, 0.0)
        kept = _us(lambda: reader.read(pods, 0.0), 50) / count
        reader.close()

        def anew() -> None:
            for pod in pods.values():
                files = PodFiles(tuple(filter(None, [locator.at(pod.cgroup)])))
                files.read(0.0)
                files.close()

        return {"kept": round(kept, 1), "opened anew": round(_us(anew, 5) / count, 1)}


def scan(count: int = PODS) -> float:
    """µs per scan."""
    with empty_groups(count) as (locator, pods):
        scanner = Scanner(locator.root, locator.layout)
        assert len(scanner.scan().pods) >= len(pods)
        return round(_us(scanner.scan, 50), 1)


def _us(call: Callable[[], object], runs: int) -> float:
    started_s = time.process_time()
    for _ in range(runs):
        call()
    return (time.process_time() - started_s) / runs * 1e6


async def _idle(socket: str, seconds: float, thread: bool) -> None:
    """Runs in a process of its own."""
    config = settings.parse({"containerd": {"socket": socket}})
    if thread:
        await _idle_thread(socket, seconds)
        return
    runtime = discover(config)
    task = asyncio.create_task(runtime.run())
    await asyncio.sleep(4)
    for _ in range(4):  # opening the files of new Pods is not idling
        runtime.read_usage(time.monotonic())
    for label, period_s in (("events only", 0.0), ("events + usage at 1 Hz", 1.0)):
        before, started_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        while time.monotonic() - started_s < seconds:
            if period_s:
                runtime.read_usage(time.monotonic())
            await asyncio.sleep(1.0 if period_s else seconds)
        _report(f"grpc.aio, {label}, {runtime.count} Pods", before, started_s)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _idle_thread(socket: str, seconds: float) -> None:
    """The alternative: a plain channel that blocks in a thread of its own."""
    import threading

    import grpc

    from carico_agent.node.pods.containerd import CHANNEL_OPTIONS, filters
    from carico_agent.node.pods.proto import events_pb2, types_pb2

    channel = grpc.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)
    subscribe = channel.unary_stream(
        "/containerd.services.events.v1.Events/Subscribe",
        events_pb2.SubscribeRequest.SerializeToString,
        types_pb2.Envelope.FromString,
    )
    wanted = settings.ContainerdSettings()
    stream = subscribe(events_pb2.SubscribeRequest(filters=filters(wanted.namespaces, wanted.topics)))
    threading.Thread(target=lambda: next(stream, None), daemon=True).start()
    await asyncio.sleep(4)
    before, started_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    await asyncio.sleep(seconds)
    _report("plain channel in a thread, events only, no lists", before, started_s)
    os._exit(0)


def _report(label: str, before: resource.struct_rusage, started_s: float) -> None:
    after, elapsed_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - started_s
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    threads = len(os.listdir("/proc/self/task"))
    print(
        f"  {label}: {used_s / elapsed_s * 100:.3f} % of a core, {resident:.1f} MB resident, {threads} threads",
        flush=True,
    )


def _load(folder: str, cgroup: str, containers: int) -> None:
    """Runs in a process of its own: containers that come and go one after the other. After each event the node has a
    moment's rest: otherwise the next `ctr` (a program of 40 MB that starts) takes the CPU that delivers the event."""
    private = PrivateContainerd(Path(folder))
    private.cgroup = cgroup
    for number in range(containers):
        private.run(f"l{number}")
        time.sleep(0.1)
        private.ctr("tasks", "kill", "-s", "9", f"l{number}")
        time.sleep(0.1)
        private.remove(f"l{number}")
        time.sleep(0.1)


def measure(containers: int) -> list[Row]:
    """For the table: from containerd's own time stamp to our updated count."""
    if reason := containerd_missing():
        return [missing("event -> Pod count", reason, failed=False)]
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as private:
        found, own = map(quantiles_ms, asyncio.run(latency(private, containers)))
    budgets = {"p99": 10.0}
    rows = [Row(f"event -> Pod count, {name}", value, "ms", budgets.get(name)) for name, value in found.items()]
    return [*rows, Row("of it in the agent, after grpc, p99", own["p99"], "ms")]


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["_load"]:
        _load(arguments[1], arguments[2], int(arguments[3]))
        return
    if arguments[:1] == ["_idle"]:
        asyncio.run(_idle(arguments[1], float(arguments[2]), arguments[3] == "thread"))
        return
    if "usage" in arguments:
        print("usage [µs of CPU per Pod]:", usage())
    if "scan" in arguments:
        print(f"scan of {PODS} Pods [µs of CPU]:", scan())
    if "latency" not in arguments and "idle" not in arguments:
        return
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as private:
        if "latency" in arguments:
            found, own = asyncio.run(latency(private))
            print(f"event -> count, {len(found)} changes [ms]:", quantiles_ms(found))
            print("  of it our own, with the Pod's cgroup [ms]:", quantiles_ms(own))
        if "idle" in arguments:
            for number in range(int(arguments[arguments.index("idle") + 1])):
                private.run(f"i{number}")
            for workload in ("aio", "thread"):
                subprocess.run([*THIS, "_idle", private.socket, "20", workload], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
