"""How fast 90 waiting Jobs move between two real control planes, and how many requests each takes.

    python -m lab.bench_burst [--jobs N]

Needs the control plane of `make test-kube`. From the start of `carico burst` (its watches included) to the release of
the last copy; requests are counted by the service itself, events included.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from lab.support.control_plane import wait_for
from tests.burst.daemon import BurstProcess
from tests.burst.planes import job_body, two_planes
from tests.burst.test_crashes import Scene
from tests.conftest import TREE


async def measure(folder: Path, jobs: int) -> dict[str, float]:
    planes = two_planes(folder)
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
            return {
                "jobs": jobs,
                "moved_s": moved_s - ready_s,
                "moved_with_start_s": moved_s - began_s,
                "home_requests": number(service, 'requests_total{cluster="home"}') / jobs,
                "target_requests": number(service, 'requests_total{cluster="cloud"}') / jobs,
            }
    finally:
        service.kill()
        for plane in planes:
            plane.stop()


def number(service: BurstProcess, name: str) -> float:
    lines = [line for line in service.get("/metrics").splitlines() if line.startswith(f"carico_burst_{name} ")]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=90)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(Path(folder), given.jobs)), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
