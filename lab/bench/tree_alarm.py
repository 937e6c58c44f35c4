"""From mkdir in the cgroup tree to the new count of Pods: inotify against the scan once a second.

python -m lab.bench.tree_alarm [--write]      half a minute: on a fake tree, the alarm on real cgroups
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.node.pods.tree_alarm import TreeAlarm
from carico_agent.node.pods.watch import RuntimeWatch
from carico_agent.settings import parse
from lab.support.code_hash import code_hash, files_of

CODE = ("carico_agent/node/pods/tree_alarm.py", "carico_agent/node/pods/tree.py", "carico_agent/node/pods/watch.py")
RESULT = Path(__file__).parents[1] / "results/tree_alarm.md"
HOLDER = "kubepods.slice/kubepods-burstable.slice"
Sleep = Callable[[float], Awaitable[None]]


async def to_count_ms(rounds: int, sleep: Sleep | None) -> list[float]:
    """mkdir of a Pod's group → RuntimeWatch has counted it."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "sys/fs/cgroup"
        (tree / HOLDER).mkdir(parents=True)
        (tree / "cgroup.controllers").write_text("cpu memory\n")
        (Path(folder) / "proc").mkdir()
        settings = parse({"node": {"root": folder}, "containerd": {"enabled": False}})
        runtime = RuntimeWatch(settings, Backoff(), *([] if sleep is None else [sleep]))
        running = asyncio.create_task(runtime.run())
        for number in range(rounds):
            await asyncio.sleep(random.uniform(0.06, 0.1) if sleep is None else random.uniform(0.0, 1.0))
            began_s = time.perf_counter()
            (tree / HOLDER / f"kubepods-burstable-pod{number:08x}_1111_2222_3333_444455556666.slice").mkdir()
            while runtime.count <= number:
                await asyncio.sleep(0.0005)
            found.append(1000 * (time.perf_counter() - began_s))
        running.cancel()
    return found


async def on_cgroups_ms(rounds: int) -> list[float]:
    """mkdir of a real cgroup → the alarm has rung; empty where no cgroup can be made."""
    top = next((p for p in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if os.access(p, os.W_OK)), None)
    if top is None:
        return []
    own, alarm, found = top / f"carico-alarm-{os.getpid()}", TreeAlarm(), []
    own.mkdir()
    try:
        alarm.watch([str(own)])
        for number in range(rounds):
            waiting = asyncio.create_task(alarm.sleep(1.0))
            await asyncio.sleep(random.uniform(0.06, 0.08))
            began_s = time.perf_counter()
            (own / str(number)).mkdir()
            await waiting
            found.append(1000 * (time.perf_counter() - began_s))
            (own / str(number)).rmdir()
            await alarm.sleep(1.0)
    finally:
        for child in [path for path in own.iterdir() if path.is_dir()]:
            child.rmdir()
        own.rmdir()
        alarm.close()
    return found


def row(name: str, found: list[float]) -> str:
    if not found:
        return f"| {name} | not measured here | | |"
    ordered = sorted(found)
    middle, late = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"| {name} | {middle:.1f} | {late:.1f} | {len(ordered)} |"


async def measure() -> list[str]:
    return [
        row("inotify, to the count", await to_count_ms(100, None)),
        row("scan once a second, to the count", await to_count_ms(20, asyncio.sleep)),
        row("inotify on this machine's cgroups, to the alarm", await on_cgroups_ms(100)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"also write {RESULT.name}")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    lines = [
        "# A group in the cgroup tree: how soon it is counted",
        "",
        f"`python -m lab.bench.tree_alarm --write`, {os.cpu_count()} CPUs, load {load:.1f} before, "
        f"code {code_hash(files_of(CODE))}. In milliseconds from mkdir; 5 ms of it are waited for on purpose.",
        "",
        "| | p50 | p99 | rounds |",
        "|---|---|---|---|",
        *asyncio.run(measure()),
        "",
    ]
    print("\n".join(lines))
    if given.write:
        RESULT.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
