"""Jobs in real containers report on the socket whose folder is mounted into them. Skipped without a containerd."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from carico_agent import settings
from carico_agent.node.progress import ProgressApi
from lab.support.containerd import PrivateContainerd
from lab.support.python_container import mounts, prepare

from .conftest import running, until

THERE = "/run/carico/progress"
JOB = """
import os, sys, time
from carico_agent.progress.client import Reporter
os.setuid(int(sys.argv[1]))
reporter = Reporter()
for step in range(1, 4):
    reporter.report(step, 10)
    time.sleep(1.05)
time.sleep(1000)
"""
FORGED = """
import json, socket, time
body = json.dumps({"done": 9, "total": 10, "uid": "default/first", "name": "first", "pid": 1}).encode()
peer = socket.socket(socket.AF_UNIX)
peer.connect("/run/carico/progress/progress.sock")
head = b"POST /v1/progress?pod=default/first HTTP/1.1\\r\\nHost: default-first\\r\\nContent-Length: %d\\r\\n\\r\\n"
peer.sendall(head % len(body) + body)
time.sleep(1000)
"""


@pytest.mark.long
async def test_reports_from_inside_containers_count_for_their_own_pods(
    containerd: PrivateContainerd, tmp_path: Path
) -> None:
    """One is root, one is nobody, and one names the first in every place where a name could stand."""
    table: dict[str, Any] = {
        "containerd": {"socket": containerd.socket},
        "progress": {"path": str(containerd.folder / "progress/progress.sock")},
    }
    config = settings.parse(table)
    prepare(containerd)
    flags = mounts((containerd.folder / "progress", THERE, "ro"))
    jobs = {"first": (JOB, "0"), "nobody": (JOB, "65534"), "forger": (FORGED, "0")}
    async with running(config) as runtime:
        api = ProgressApi(lambda: config, runtime)
        await api.start()
        try:
            await until(lambda: runtime.source == "containerd")
            for name, (code, uid) in jobs.items():
                await asyncio.to_thread(containerd.run, name, sys.executable, "-c", code, uid, flags=flags)
            await until(lambda: len(api.jobs.table) == 3, 60)
            done = {"first": 3.0, "nobody": 3.0, "forger": 9.0}
            await until(lambda: {key.partition("/")[2]: job.done for key, job in api.jobs.table} == done, 60)
            points = api.jobs.table.get("default/first")
            assert points is not None
            assert all(point.cpu_s > 0 for point in points.points), "its CPU time is that of its own group"
            assert (points.runs, api.limiter.refused["requests"]) == (1, 0)
        finally:
            await api.stop()
