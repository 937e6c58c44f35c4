"""Jobs report how far they are: a second socket that every local user may open and that offers nothing else.

Who reports is the Pod of the process at the other end (runtime/peer_pod.py); limits hold per Pod, so that one that
floods disturbs no other Pod. The main socket shows what was reported (`GET /v1/progress`).
"""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from aiohttp import web

from carico_agent.lib.net.http import ApiError, Handler, HttpServer, answer, peer, read_json
from carico_agent.lib.net.limits import Limits, Peer, RateLimiter
from carico_agent.lib.net.metrics import Family
from carico_agent.lib.net.openapi import Operation, operation
from carico_agent.lib.net.times import rfc3339
from carico_agent.node.pods.cgroup import cpu_seconds
from carico_agent.node.pods.jobs import Jobs, JobView, pace_s
from carico_agent.node.pods.peer_pod import NotInPod, PeerPods, Process
from carico_agent.node.pods.pods import Pod
from carico_agent.node.pods.watch import Runtime
from carico_agent.node.publish.status import WorkStatus, known
from carico_agent.progress.table import BadReport, parse
from carico_agent.settings import Settings

log = logging.getLogger(__name__)

MAX_REPORT_BYTES = 16 * 1024
"""Kubeflow Trainer's status may carry metrics; a report is 40 bytes."""
MODE = 0o666
REPORT = {
    "type": "object",
    "properties": {
        "done": {"type": "number", "minimum": 0},
        "total": {"type": "number", "exclusiveMinimum": 0},
        "trainerStatus": {"type": "object", "properties": {"progressPercentage": {"type": "number"}}},
    },
}


@dataclass(frozen=True, slots=True)
class PodPeer(Peer):
    """A process at the other end of a connection; limits hold for its Pod."""

    process: Process | None = None
    refused: str = ""
    """Why it is in no Pod."""


class ProgressApi:
    """The table of jobs, its two sockets' routes and its part of the status."""

    def __init__(self, settings: Callable[[], Settings], runtime: Runtime) -> None:
        self._settings, self._runtime = settings, runtime
        self._peers = PeerPods(Path(settings().node.root), lambda: runtime.pods)
        self.jobs = Jobs(self._cpu_s, time.time, self._peers.lives)
        self.limiter = RateLimiter(self._limits())
        self.server = HttpServer(
            {"/v1/progress": {"POST": self._report}}, self.limiter, MAX_REPORT_BYTES, identify=self._identify
        )
        self._refused = 0

    def _limits(self) -> Limits:
        wanted = self._settings().progress
        return Limits(wanted.pod_connections, wanted.pod_reports_per_s)

    async def start(self) -> None:
        """Take the socket. Its folder is for everybody to enter: the service's umask would keep Pods out.

        A Pod that mounts the folder may write to it, unless the mount is read-only. Whatever it puts there is replaced,
        and what cannot be replaced costs the reports and not the agent, which has taken its own socket by now.
        """
        if not self._settings().progress.enabled:
            return
        path = self._settings().progress_path
        try:
            await self.server.bind_unix(path, mode=MODE, replace=True)
            path.parent.chmod(0o755)
        except OSError as error:
            log.error("jobs cannot report: %s", error)
            return
        await self.server.serve()
        log.info("jobs report to %s", path)

    async def stop(self) -> None:
        await self.server.stop()

    def take_settings(self, settings: Settings) -> None:
        self.limiter.allow(self._limits())

    # ---- the socket for jobs

    def _identify(self, connection: socket.socket) -> Peer:
        try:
            process, pod = self._peers.accept(connection)
        except NotInPod as error:
            return PodPeer("in no Pod", may_reserve=False, refused=str(error))
        return PodPeer(f"Pod {pod.key}", may_reserve=False, process=process)

    @operation(Operation(body=REPORT, errors={403: "the process is in no Pod of this node"}))
    async def _report(self, request: web.BaseRequest) -> web.StreamResponse:
        """how far the job in this Pod is

        `{"done": 120, "total": 5000}`, or Kubeflow Trainer's `{"trainerStatus": {"progressPercentage": 45}}`. Who
        reports is found from the process. The answer says when the next report is wanted.
        """
        who = peer(request)
        assert isinstance(who, PodPeer)
        pod = self._pod(who)
        try:
            done, total = parse(await read_json(request, MAX_REPORT_BYTES))
        except BadReport as error:
            raise ApiError(400, str(error)) from error
        self.jobs.report(pod, time.monotonic(), done, total, who.process)
        next_s = round(pace_s(len(self.jobs.table), self._settings().progress.reports_per_s), 1)
        self.jobs.ask(pod, next_s)
        return answer({"next_s": next_s})

    def _pod(self, who: PodPeer) -> Pod:
        try:
            if who.process is None:
                raise NotInPod(who.refused)
            return self._peers.again(who.process)
        except NotInPod as error:
            self._refused += 1
            raise ApiError(403, str(error)) from error

    def _cpu_s(self, pod: Pod) -> float:
        return cpu_seconds(self._peers.groups.of(pod))

    # ---- what others see of it

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {"/v1/progress": {"GET": self._show}}

    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """jobs: how far each is, the CPU seconds it still needs and when it should end"""
        now_s = time.monotonic()
        jobs = [body(view, now_s) for view in self.jobs.views(now_s)]
        return answer({"socket": str(self._settings().progress_path), "jobs": jobs})

    def look(self) -> None:
        """Once a second: who came, and who ended."""
        self.jobs.look(time.monotonic(), self._runtime.pods)

    def status(self) -> WorkStatus:
        """For the status."""
        found = self.jobs.summary(time.monotonic())
        return WorkStatus(
            found.jobs, found.unknown, found.uncertain, round(found.total_s, 1), round(found.longest_s, 1)
        )

    def families(self) -> Iterator[Family]:
        yield Family("carico_progress_reports_total", "counter", "Reports of jobs.").add(self.jobs.table.reports)
        refused = Family("carico_progress_refused_total", "counter", "Reports that were not taken.")
        yield refused.add(self._refused, why="in no Pod").add(self.limiter.refused["requests"], why="too many")


def body(view: JobView, now_s: float) -> dict[str, Any]:
    """One job for /v1/progress."""
    pod, left, job = view.pod, view.left, view.job
    end = rfc3339(time.time() + left.end_s) if isfinite(left.end_s) else None
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "workload": pod.workload,
        "source": "reports" if job else "history",
        "done": job.done if job else None,
        "total": job.total if job else None,
        "ratio": round(job.done / job.total, 4) if job else None,
        "runs": job.runs if job else None,
        "age_s": round(now_s - job.last_s, 1) if job else None,
        "stale": view.stale,
        "left_cpu_s": known(left.cpu_s, 1),
        "cores": known(left.cores, 3),
        "left_s": known(left.end_s, 1),
        "end": end,
        "uncertain": left.uncertain,
    }
