"""How fast 90 waiting Jobs move between two real control planes, how many requests each takes, and how soon the
service and `carico burst status` say that a target does not answer (killed, and stopped as a process).

    python -m lab.bench.burst [--jobs N] [--write]

Needs the control plane of `make test-kube`. From the start of `carico burst` (its watches included) to the release of
the last copy; requests are counted by the service itself, events included.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from lab.support import TREE
from lab.support.burst_planes import BurstPlane, job_body, two_planes
from lab.support.burst_process import BurstProcess
from lab.support.burst_scene import Scene
from lab.support.waiting import wait_for

RESULTS = TREE / "lab/results/burst_bench.json"


async def measure(planes: tuple[BurstPlane, BurstPlane], folder: Path, jobs: int) -> dict[str, float]:
    planes[0].apply(TREE / "deploy/burst/home.yaml")
    planes[1].apply(TREE / "deploy/burst/target.yaml")
    service = BurstProcess(folder, *planes, unschedulable_s=0.0)
    try:
        async with Scene(planes) as scene:
            names = await scene.submit([job_body(f"job-{n}", 5.0) for n in range(jobs)])
            began_s = time.monotonic()
            service.start()
            await asyncio.to_thread(service.ready)
            ready_s = time.monotonic()
            await asyncio.to_thread(wait_for, lambda: number(service, "moved_total") >= jobs, "all moved", 300, 0.05)
            moved_s = time.monotonic()
            await asyncio.to_thread(
                wait_for, lambda: number(service, 'jobs{state="done"}') >= jobs, "all ended", 300, 0.2
            )
            scene.judge(names)
            counted = {
                "jobs": jobs,
                "moved_s": moved_s - ready_s,
                "moved_with_start_s": moved_s - began_s,
                "home_requests": number(service, 'requests_total{cluster="home"}') / jobs,
                "target_requests": number(service, 'requests_total{cluster="cloud"}') / jobs,
            }
            return {**counted, **await asyncio.to_thread(away, service, planes[1])}
    finally:
        service.kill()


def away(service: BurstProcess, cloud: BurstPlane) -> dict[str, float]:
    """Until the service, and after it the command, say that the target does not answer [s]."""

    def answers() -> bool:
        return bool(service.status()["targets"]["cloud"]["answers"])

    def reported_after_s() -> float:
        began_s = time.monotonic()
        wait_for(lambda: not answers(), "the service says it", 60, 0.05)
        return time.monotonic() - began_s

    cloud.signal_api(signal.SIGSTOP)
    try:
        stopped_s = reported_after_s()
        began_s = time.monotonic()
        assert "does not answer" in service.command("status").stdout
        command_s = time.monotonic() - began_s
    finally:
        cloud.signal_api(signal.SIGCONT)
    wait_for(answers, "it answers again", 60)
    cloud.stop_api()
    killed_s = reported_after_s()
    return {"stopped_reported_s": stopped_s, "killed_reported_s": killed_s, "command_s": command_s}


def number(service: BurstProcess, name: str) -> float:
    lines = [line for line in service.get("/metrics").splitlines() if line.startswith(f"carico_burst_{name} ")]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=90)
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.relative_to(TREE)}")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, two_planes(Path(folder)) as planes:
        measured = asyncio.run(measure(planes, Path(folder), given.jobs))
    text = json.dumps({"load_before": load, **measured}, indent=2)
    print(text)
    if given.write:
        RESULTS.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
