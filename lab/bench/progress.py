"""What reports cost the agent that takes them, and the training loop that sends them.

    python -m lab.bench.progress [--only loop,reporters] [--write]

The loop: blocks of a real training loop without reports, with a dead agent (no socket) and with a hanging one (the
kernel takes the connection, nobody reads), in turn; medians of the blocks' ratios. The reporters: 110 processes, each
in the group of a container of its own; the agent's CPU time without and with them, off-on-on-off. `--write` keeps the
result in lab/results/progress_bench.json.
"""

import argparse
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import mean, median

from carico_agent.progress.client import INTERVAL_S, Reporter
from lab.bench.process import Http, agent, cpu_s
from lab.bench.table import Row, lines, missing
from lab.progress.report import RESULTS
from lab.progress.train import LOOPS
from lab.support.containerd import PrivateContainerd
from lab.support.containerd import missing as containerd_missing

REPORTERS, SLOWER = 110, 1.01
SHARE_RATIO = 0.6
"""Of what the agent takes without reporters, in the same run. That is 0.5 % of a core on a quiet machine, so this is
0.3 % of one: a busy machine makes both dearer alike."""
BLOCK = 200
Report = Callable[[float, float], None]


def loop(rounds: int) -> list[Row]:
    """Blocks of 200 steps of 1 ms, three workloads in turn; each begins every third time."""
    with tempfile.TemporaryDirectory(prefix="carico-bench-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/hanging.sock")
        listener.listen(1)
        workloads: dict[str, Report] = {
            "no reports": lambda done, total: None,
            "a dead agent": Reporter(f"{folder}/nobody.sock").report,
            "a hanging agent": Reporter(f"{folder}/hanging.sock").report,
        }
        cpu = {name: list[float]() for name in workloads}
        wall = {name: list[float]() for name in workloads}
        steps, names = LOOPS["linear regression"](), list(workloads)
        for number in range(rounds):
            for name in names[number % 3 :] + names[: number % 3]:
                used_s, took_s = _block(steps, workloads[name])
                cpu[name].append(used_s)
                wall[name].append(took_s)
    rows = [Row("a step of the loop without reports: CPU", median(cpu["no reports"]) / BLOCK * 1e3, "ms")]
    for name in names[1:]:
        rows.append(Row(f"the same with {name}: CPU, ratio", _ratio(cpu, name), "x", SLOWER))
        rows.append(Row(f"the same with {name}: time, ratio", _ratio(wall, name), "x"))
    return rows


def _block(steps: Iterator[None], report: Report) -> tuple[float, float]:
    used_s, began_s = time.process_time(), time.perf_counter()
    for step, _ in enumerate(islice(steps, BLOCK)):
        report(step, BLOCK)
    return time.process_time() - used_s, time.perf_counter() - began_s


def _ratio(blocks: dict[str, list[float]], name: str) -> float:
    """Of one round's blocks each: what else the machine does changes from round to round."""
    return median(own / bare for own, bare in zip(blocks[name], blocks["no reports"], strict=True))


def reporters(window_s: float, count: int) -> list[Row]:
    if why := containerd_missing():
        return [missing(f"{count} reporters", why)]
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="cb-", dir="/tmp"))) as containerd:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: containerd.run(f"pod{number}"), range(count)))
        with agent("--containerd", containerd.socket, config="[budget]\ncpu_ratio = 1.0\n") as own:
            path = f"{Path(own.path).parent}/progress/progress.sock"
            time.sleep(8.0)  # two listings and the cgroups of all Pods
            rows = list[Row]()
            for label, paced in (("as the client reports", True), ("that ignore when they are asked to", False)):
                off, on = list[float](), list[float]()
                for busy in (False, True, True, False) if paced else (False, True):
                    with sending(containerd, path, count if busy else 0, paced):
                        (on if busy else off).append(_percent(own.pid, window_s))
                        known = json.loads(Http(own.path).get("/v1/status"))["work"]
                        assert not busy or known["jobs"] + known["unknown"] == count, known
                more, note = mean(on) - mean(off), f"{mean(off):.2f} % without"
                rows.append(Row(f"{count} reporters {label}: the agent's CPU", more, "% of a core", note=note))
                if paced:
                    share = f"{count} reporters {label}: as a share of the agent's CPU without them"
                    rows.append(Row(share, more / mean(off), "x", SHARE_RATIO))
    return rows


def _percent(pid: int, window_s: float) -> float:
    time.sleep(3.0)  # those that begin have begun
    used_s, started_s = cpu_s(pid), time.monotonic()
    time.sleep(window_s)
    return 100 * (cpu_s(pid) - used_s) / (time.monotonic() - started_s)


@contextmanager
def sending(containerd: PrivateContainerd, path: str, count: int, paced: bool) -> Iterator[None]:
    """Processes that call `report` ten times a second, each in a container's group."""
    pids = [_fork(containerd, path, number, paced) for number in range(count)]
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _fork(containerd: PrivateContainerd, path: str, number: int, paced: bool) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        mount = Path("/sys/fs/cgroup")
        for top in (mount, *mount.iterdir()):
            group = top / containerd.cgroup / f"pod{number}/cgroup.procs"
            if group.exists():
                group.write_text(str(os.getpid()))
        reporter = Reporter(path)
        time.sleep(number / REPORTERS)  # not all in one moment
        for step in range(100_000):
            reporter.report(step, 100_000)
            if not paced:
                reporter._interval_s = INTERVAL_S
                reporter._due_s = min(reporter._due_s, time.monotonic() + INTERVAL_S)
            time.sleep(0.1)
    finally:
        os._exit(0)


def measure(quick: bool) -> list[Row]:
    return [*loop(30 if quick else 60), *reporters(*((6, 20) if quick else (10, REPORTERS)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="loop,reporters")
    parser.add_argument("--write", action="store_true", help="keep the result")
    given = parser.parse_args()
    rows = loop(30 if given.quick else 60) if "loop" in given.only else []
    if "reporters" in given.only:
        rows += reporters(*((6, 20) if given.quick else (10, REPORTERS)))
    print("\n".join(lines("progress", rows)))
    if given.write:
        file = RESULTS / "progress_bench.json"
        kept = json.loads(file.read_text()) if file.exists() else {}
        kept |= {row.what: _text(row) for row in rows if row.value is not None}
        file.write_text(json.dumps(kept, indent=1) + "\n")
    return int(any(row.failed for row in rows))


def _text(row: Row) -> str:
    note = f" ({row.note})" if row.note else ""
    return f"{row.value:.4f} {row.unit}{note}" if row.unit == "x" else f"{row.value:.2f} {row.unit}{note}"


if __name__ == "__main__":
    raise SystemExit(main())
