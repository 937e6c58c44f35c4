"""What Pods want as the agent measures it, beside the truth; and what measuring costs. Prints tables; asserts nothing.

    python -m lab.bench.pods [demand] [cost] [history] [--seconds 30] [--pods 110] [--out lab/results/pods.md]

demand: real containers under a private containerd: four that sleep, one at a quota of 20 % of a core, one with four
        busy threads, and n busy loops, n = 0 … 5. Truth by construction: a loop wants one core, whatever it gets.
cost:   N cgroups, a sleeping process in each (then with a little work in each), read by ten ticks a second. Beside it
        what reading three of a Pod's files takes in the same rhythm: on a busy machine caches are cold, and both rise.
history: N containers, each once in N / 5.5 s, as 330 of them once a minute.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.container_history import ContainerReader
from carico_agent.node.pods.counter_files import CounterFiles
from carico_agent.node.pods.meter import PERIOD_S, PodMeters, PodReading, open_cgroups
from carico_agent.node.pods.pods import Pod
from lab.support.containerd import PrivateContainerd
from lab.support.containerd import missing as containerd_missing

SH = ("/bin/busybox", "sh", "-c")
LOOP = (*SH, "while :; do :; done")
FOUR = (*SH, "for i in 1 2 3; do (while :; do :; done) & done; while :; do :; done")
QUOTA = ("--cpu-quota", "20000", "--cpu-period", "100000")
TICK_S = 0.1
WORK = "while :; do sleep 1; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; done"


def run_ticks(meters: PodMeters, pods: Mapping[str, Pod], seconds: float, took_s: list[float]) -> list[PodReading]:
    """Ten ticks a second for some time; CPU time of each goes to `took_s`."""
    found: list[PodReading] = []
    due_s = time.monotonic()
    until_s = due_s + seconds
    while due_s < until_s:
        before_s = time.thread_time()
        found += meters.tick(time.monotonic(), pods)
        took_s.append(time.thread_time() - before_s)
        due_s += TICK_S
        time.sleep(max(due_s - time.monotonic(), 0.0))
    return found


def pods_of(locator: Locator, top: str, names: list[str]) -> dict[str, Pod]:
    groups = {name: locator.at(f"/{top}/{name}") for name in names}
    return {name: Pod(name, name, "", cgroup=g.path, inode=g.inode, workload=name) for name, g in groups.items() if g}


def demand_rows(seconds: float, loops: range) -> Iterator[tuple[int, str, float, list[PodReading]]]:
    """(busy loops, container, cores it truly wants, measurements)"""
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as private:
        locator, names = Locator(Path("/")), [f"sleep{n}" for n in range(4)]
        for name in names:
            private.run(name)
        private.run("quota", *LOOP, flags=QUOTA)
        truth = {**dict.fromkeys(names, 0.0), "quota": 0.2}
        for count in loops:
            if count:
                private.run(f"loop{count}", *LOOP)
                truth[f"loop{count}"] = 1.0
            yield from _rows(locator, private.cgroup, count, truth, seconds)
        private.remove("quota", *(f"loop{n}" for n in loops if n))
        private.run("four", *FOUR)
        truth = {**dict.fromkeys(names, 0.0), "four": 4.0}
        for count in (0, 1, 3):
            for number in range(1, count + 1):
                if f"loop{number}" not in truth:
                    private.run(f"loop{number}", *LOOP)
                    truth[f"loop{number}"] = 1.0
            yield from _rows(locator, private.cgroup, count, truth, seconds)


def _rows(
    locator: Locator, top: str, count: int, truth: dict[str, float], seconds: float
) -> Iterator[tuple[int, str, float, list[PodReading]]]:
    meters = PodMeters(open_cgroups(locator))
    found = run_ticks(meters, pods_of(locator, top, list(truth)), seconds, [])
    meters.close()
    for name, cores in truth.items():
        yield count, name, cores, [one for one in found if one.pod.key == name]


def demand_table(rows: Iterator[tuple[int, str, float, list[PodReading]]]) -> Iterator[str]:
    yield "| busy loops beside | container | wants [cores] | got | measured: mean | least | most | memory [MB] |"
    yield "|---|---|---|---|---|---|---|---|"
    for count, name, truth, found in rows:
        if not found:
            yield f"| {count} | {name} | {truth:.2f} | | not measured | | | |"
            continue
        wanted = [one.demand() for one in found]
        cores = [one.cpu_cores for one in wanted]
        got = statistics.mean(one.cpu_usage_cores for one in wanted)
        memory = wanted[-1].memory_bytes / 1e6
        spread = f"{statistics.mean(cores):.2f} | {min(cores):.2f} | {max(cores):.2f}"
        yield f"| {count} | {name} | {truth:.2f} | {got:.2f} | {spread} | {memory:.1f} |"


@contextmanager
def processes_in_groups(
    count: int, command: list[str], label: str = "bench"
) -> Iterator[tuple[Locator, dict[str, Pod]]]:
    """Real cgroups with one process each; all removed afterwards."""
    locator, top = Locator(Path("/")), f"carico-{label}-{os.getpid()}"
    mounts = dict.fromkeys([*locator.layout.controllers.values(), *filter(None, [locator.layout.unified])])
    names, started = [f"p{n}" for n in range(count)], []
    try:
        for name in names:
            # it waits for a line until it is in its group: what it forks before would stay outside
            waiting = ["sh", "-c", 'read line; exec "$@"', "sh", *command]
            process = subprocess.Popen(waiting, start_new_session=True, stdin=subprocess.PIPE)
            started.append(process)
            for mount in mounts:
                folder = Path(f"/{mount}/{top}/{name}")
                folder.mkdir(parents=True)
                (folder / "cgroup.procs").write_text(str(process.pid))
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.close()
        yield locator, pods_of(locator, top, names)
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        time.sleep(0.3)
        for mount in mounts:
            for folder in (*Path(f"/{mount}/{top}").glob("p*"), Path(f"/{mount}/{top}")):
                folder.rmdir()


def floor_us(locator: Locator, pods: Mapping[str, Pod]) -> float:
    """Nothing but reading three files of each Pod, kept open, two Pods every 40 ms: what the kernel itself takes."""
    files = [CounterFiles(group) for pod in pods.values() if (group := locator.at(pod.cgroup))]
    used_s = 0.0
    for one, other in zip(files[::2], files[1::2], strict=False):
        time.sleep(0.04)
        before_s = time.thread_time()
        for opened in (one, other):
            for descriptor in opened.descriptors[:3]:
                os.pread(descriptor, 4096, 0)
        used_s += time.thread_time() - before_s
    for opened in files:
        opened.close()
    return used_s / len(files) * 1e6


def cost_table(count: int, seconds: float) -> Iterator[str]:
    columns = ("Pods", "what they do", "% of a core", "µs per turn of a Pod", "three reads alone [µs]")
    yield " | ".join(["", *columns, "tick p50 [ms]", "p99", "most", "most while opening", ""]).strip()
    yield "|---" * 9 + "|"
    for what, command in (("sleep", ["sleep", "1000"]), ("work a little every second", ["sh", "-c", WORK])):
        with processes_in_groups(count, command) as (locator, pods):
            meters = PodMeters(open_cgroups(locator))
            opening_s: list[float] = []
            run_ticks(meters, pods, 25.0, opening_s)  # opening files is not the steady state
            took_s: list[float] = []
            run_ticks(meters, pods, seconds, took_s)
            meters.close()
            floor = floor_us(locator, pods)
        share, ordered = sum(took_s) / seconds * 100, sorted(took_s)
        quantiles = [ordered[min(int(q * len(ordered)), len(ordered) - 1)] * 1e3 for q in (0.5, 0.99, 1.0)]
        times = " | ".join(f"{value:.2f}" for value in (*quantiles, max(opening_s) * 1e3))
        each_us = sum(took_s) / (count * seconds / PERIOD_S) * 1e6
        yield f"| {count} | {what} | {share:.3f} | {each_us:.0f} | {floor:.0f} | {times} |"


def history_table(count: int, seconds: float) -> Iterator[str]:
    yield "| containers a second | % of a core | µs per container |"
    yield "|---|---|---|"
    with processes_in_groups(count, ["sleep", "1000"]) as (locator, pods):
        reader = ContainerReader(locator, period_s=count / 5.5)
        used_s, found, ticks = 0.0, 0, 0
        started_s = time.monotonic()
        while time.monotonic() - started_s < max(seconds, 2 * count / 5.5):
            before_s = time.thread_time()
            found += len(reader.tick(time.monotonic(), time.time(), pods))
            if found:  # from the second round on
                used_s += time.thread_time() - before_s
                ticks += 1
            time.sleep(1.0)
    yield f"| {found / max(ticks, 1):.1f} | {used_s / max(ticks, 1) * 100:.3f} | {used_s / max(found, 1) * 1e6:.0f} |"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.bench.pods")
    parser.add_argument("parts", nargs="*", choices=["demand", "cost", "history", []])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--pods", type=int, default=110)
    parser.add_argument("--loops", type=int, default=5, help="the most busy loops beside")
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args(arguments)
    parts: dict[str, Callable[[], Iterator[str]]] = {
        "demand": lambda: demand_table(demand_rows(wanted.seconds, range(wanted.loops + 1))),
        "cost": lambda: cost_table(wanted.pods, wanted.seconds),
        "history": lambda: history_table(wanted.pods, wanted.seconds),
    }
    if "demand" in (wanted.parts or parts) and (reason := containerd_missing()):
        sys.exit(f"demand: {reason}")
    lines = [f"# Pods measured ({os.cpu_count()} cores, Linux {os.uname().release})"]
    for name in wanted.parts or parts:
        lines += ["", f"## {name}", ""]
        print(*lines[-3:], sep="\n", flush=True)
        for line in parts[name]():
            print(line, flush=True)
            lines.append(line)
    if wanted.out:
        wanted.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
