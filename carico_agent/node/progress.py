"""Jobs report how far they are: a second socket that every local user may open and that offers nothing else.

Who reports is the Pod of the process at the other end (pods/peer_pod.py), or the process itself where it is in no Pod
(pods/plain_processes.py); limits hold per Pod, or per user. Pods without the socket write a file instead
(pods/report_files.py). The main socket shows what was reported (`GET /v1/progress`).
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

from aiohttp import web

from carico_agent.lib.net.http import ApiError, Handler, HttpServer, answer, peer, read_json
from carico_agent.lib.net.limits import Limits, Peer, RateLimiter
from carico_agent.lib.net.metrics import Family
from carico_agent.lib.net.openapi import Operation, operation
from carico_agent.lib.net.peers import peer_of
from carico_agent.lib.net.times import rfc3339
from carico_agent.node.pods.cgroup import cpu_seconds
from carico_agent.node.pods.jobs import Jobs, JobView, pace_s
from carico_agent.node.pods.peer_pod import Elsewhere, NotInPod, NotSeen, NotYet, PeerPods, Process
from carico_agent.node.pods.plain_processes import PlainProcesses, ProcessCpu
from carico_agent.node.pods.pods import Pod
from carico_agent.node.pods.report_files import ReportFiles
from carico_agent.node.pods.watch import Runtime
from carico_agent.node.publish.status import WorkStatus, known
from carico_agent.progress import procon
from carico_agent.progress.table import BadReport, parse
from carico_agent.progress.work_left import WorkLeft
from carico_agent.settings import Settings

log = logging.getLogger(__name__)

MAX_REPORT_BYTES = 16 * 1024
"""Kubeflow Trainer's status may carry metrics; a report is 40 bytes."""
MODE = 0o666
REFUSAL_LOG_S = 60.0
"""Between two lines in the log about refused reports."""
MAX_ENDED = 256
MAX_LEFTS, MAX_TOP = 32, 8
"""Jobs that the status names with the work they have left, and with their expected end."""
JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name", "training.kubeflow.org/job-name", "ray.io/cluster")
REMEDY = "[progress] processes = true in the agent's configuration accepts processes outside of Pods"
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
        root = settings().node.root.rstrip("/")
        self._peers = PeerPods(Path(root or "/"), lambda: runtime.pods)
        self._plain = PlainProcesses(f"{root}/proc", self._peers.lives)
        self._process_cpu = ProcessCpu(f"{root}/proc")
        folder = settings().progress.kubelet_pods
        self._files = ReportFiles(f"{root}{folder}") if folder else None
        self._all: tuple[Mapping[str, Pod], Mapping[str, Pod], Mapping[str, Pod]] = ({}, {}, {})
        self.jobs = Jobs(self._cpu_s, time.time, self._peers.lives)
        self.limiter = RateLimiter(self._limits())
        self.server = HttpServer(
            {"/v1/progress": {"POST": self._report}}, self.limiter, MAX_REPORT_BYTES, identify=self._identify
        )
        self._ended: dict[Process, None] = {}
        self._refused, self._refusal_logged_s = 0, -inf

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
            process = self._peers.connected(connection)
        except NotSeen as error:
            return PodPeer("not seen", may_reserve=False, refused=str(error))
        try:
            return PodPeer(f"Pod {self._peers.pod_of(process).key}", may_reserve=False, process=process)
        except NotInPod:
            return PodPeer(f"in no Pod, {peer_of(connection).name}", may_reserve=False, process=process)

    @operation(
        Operation(
            body=REPORT, errors={403: "the agent takes no reports of this process", 503: "its Pod is not known yet"}
        )
    )
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
        return answer({"next_s": self._take(pod, done, total, who.process)})

    def _take(self, pod: Pod, done: float, total: float, process: Process | None) -> float:
        """A report; returns when the next one is wanted."""
        self.jobs.report(pod, time.monotonic(), done, total, process)
        next_s = round(pace_s(len(self.jobs.table), self._settings().progress.reports_per_s), 1)
        self.jobs.ask(pod, next_s)
        return next_s

    def _pod(self, who: PodPeer) -> Pod:
        try:
            if who.process is None:
                raise NotSeen(who.refused)
            return self._pod_or_process(who.process)
        except NotYet as error:
            raise ApiError(503, str(error)) from error
        except NotInPod as error:
            self._refuse(str(error))
            raise ApiError(403, str(error)) from error

    def _pod_or_process(self, process: Process) -> Pod:
        try:
            pod = self._still(process)
        except (NotSeen, NotYet, Elsewhere):
            raise
        except NotInPod as error:
            if not self._settings().progress.processes:
                raise NotInPod(f"{error}; {REMEDY}") from error
            known = self._plain.pods
            pod = self._plain.pod_of(process)
            if pod.key not in known:
                self.refresh()
            return pod
        self._plain.forget(process)
        return pod

    def _still(self, process: Process) -> Pod:
        """Its Pod. What a process wrote just before its end is read after it: that one report counts. Later ones come
        from another process to which the connection was handed on."""
        try:
            return self._peers.again(process)
        except NotSeen:
            if process in self._ended:
                raise
            self._ended[process] = None
            while len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]
            return self._peers.pod_of(process)

    def _refuse(self, why: str) -> None:
        self._refused += 1
        now_s = time.monotonic()
        if now_s - self._refusal_logged_s >= REFUSAL_LOG_S:
            self._refusal_logged_s = now_s
            log.warning("a report of progress was refused: %s", why)

    def _cpu_s(self, pod: Pod) -> float:
        if pod.pids and not pod.cgroup and pod.key.rpartition("/")[2].startswith(f"{pod.pids[0]}-"):
            return self._process_cpu.read(pod)
        return cpu_seconds(self._peers.groups.of(pod))

    # ---- what others see of it

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {"/v1/progress": {"GET": self._show}}

    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """jobs: how far each is, the CPU seconds it still needs and when it should end"""
        now_s = time.monotonic()
        jobs = [body(view, now_s, self._plain.has_ended(view.pod.key)) for view in self.jobs.views(now_s)]
        return answer({"socket": str(self._settings().progress_path), "jobs": jobs})

    def refresh(self) -> None:
        """Once a second: who came, who ended, and what was written to files."""
        now_s = time.monotonic()
        self._plain.refresh(now_s)
        self.jobs.refresh(now_s, self._pods())
        self._process_cpu.keep(self._pods())
        if self._files is not None:
            per_s = max(1, int(self._settings().progress.reports_per_s))
            for pod, done, total in self._files.poll(self._runtime.pods, per_s):
                self._take(pod, done, total, None)

    def _pods(self) -> Mapping[str, Pod]:
        """The node's Pods and the processes outside of them; the same mapping until one comes or goes."""
        of_node, plain, both = self._all
        if of_node is not self._runtime.pods or plain is not self._plain.pods:
            both = {**self._runtime.pods, **self._plain.pods}
            self._all = (self._runtime.pods, self._plain.pods, both)
        return both

    def status(self) -> WorkStatus:
        """For the status."""
        now_s = time.monotonic()
        views = self.jobs.views_of_pods(now_s)
        found = self.jobs.summary_of(views, now_s)
        known_views = [view for view in views if isfinite(view.left.cpu_s)]
        runs_s = [view.job.points[-1].cpu_s + view.left.cpu_s for view in known_views if view.job.runs == 1]
        contention = procon.worker(
            [procon.RunningJob(view.job.points, view.job.total, view.left.cores) for view in views],
            float(os.cpu_count() or 1),
        )
        return WorkStatus(
            found.jobs,
            found.unknown,
            found.uncertain,
            round(found.total_s, 1),
            round(found.longest_s, 1),
            tuple(sorted((round(view.left.cpu_s) for view in known_views), reverse=True)[:MAX_LEFTS]),
            round(sum(runs_s) / len(runs_s), 1) if runs_s else None,
            round(contention.now_s, 1),
            round(contention.with_one_more_s, 1),
            bool(views) and not contention.below_limit,
            top(views),
        )

    def families(self) -> Iterator[Family]:
        yield Family("carico_progress_reports_total", "counter", "Reports of jobs.").add(self.jobs.table.reports)
        refused = Family("carico_progress_refused_total", "counter", "Reports that were not taken.")
        yield refused.add(self._refused, why="in no Pod").add(self.limiter.refused["requests"], why="too many")


def top(views: Sequence[JobView]) -> tuple[tuple[str, float, str], ...]:
    """The jobs that end last, for those who see the whole cluster."""
    ordered = sorted(views, key=lambda view: -view.left.end_s if isfinite(view.left.end_s) else 0.0)
    return tuple(
        (
            f"{view.pod.namespace}/{job_name(view.pod) or view.pod.name}"[:80],
            round(view.job.done / view.job.total, 3),
            rfc3339(time.time() + view.left.end_s, digits="seconds") if isfinite(view.left.end_s) else "",
        )
        for view in ordered[:MAX_TOP]
    )


def job_name(pod: Pod) -> str:
    """The Job that this Pod is one of; empty: none."""
    return next((pod.labels[label] for label in JOB_LABELS if pod.labels.get(label)), "")


def body(view: JobView, now_s: float, ended: bool = False) -> dict[str, Any]:
    """One job for /v1/progress."""
    pod, job = view.pod, view.job
    left = WorkLeft() if ended and job.done < job.total else view.left  # it will never end as it was expected to
    end = rfc3339(time.time() + left.end_s) if isfinite(left.end_s) else None
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "workload": pod.workload,
        "job": job_name(pod),
        "source": left.basis or "unknown",
        "done": job.done,
        "total": job.total,
        "ratio": round(job.done / job.total, 4),
        "runs": job.runs,
        "age_s": round(now_s - job.last_s, 1),
        "stale": view.stale,
        "ended": ended,
        "per_s": known(left.per_s, 6),
        "left_cpu_s": known(left.cpu_s, 1),
        "cores": known(left.cores, 3),
        "left_s": known(left.end_s, 1),
        "left_low_s": known(left.low_s, 1),
        "left_high_s": known(left.high_s, 1),
        "end": end,
        "uncertain": left.uncertain,
    }
