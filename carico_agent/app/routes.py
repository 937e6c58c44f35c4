"""What the agent answers about itself, its Pods and its events."""

import json
import time
from typing import TYPE_CHECKING, Any

from aiohttp import web

from carico_agent.app.kubernetes import KubeSide
from carico_agent.app.status import self_body, self_metrics, status_metrics
from carico_agent.net import metrics
from carico_agent.net.http import ApiError, Handler, answer, stream_lines
from carico_agent.net.openapi import LINES, TEXT, Operation, operation
from carico_agent.runtime.pods import Pod
from carico_agent.runtime.usage import PodUsage
from carico_agent.settings import BadSettings

if TYPE_CHECKING:
    from carico_agent.app.agent import Agent


class Routes:
    """Handlers over one agent's parts."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._cpu_ratio, self._looked_s = 0.0, 0.0

    def all(self) -> dict[str, dict[str, Handler]]:
        return {
            "/v1/pods": {"GET": self._pods},
            "/v1/events": {"GET": self._events},
            "/v1/self": {"GET": self._self},
            "/metrics": {"GET": self._metrics},
            "/v1/reload": {"POST": self._reload},
        }

    @operation(Operation(needs="root", errors={400: "the configuration has errors; the old one stays"}))
    async def _reload(self, request: web.BaseRequest) -> web.StreamResponse:
        """read the configuration again, as SIGHUP does"""
        try:
            taken, waiting = self._agent.reload()
        except BadSettings as bad:
            raise ApiError(400, "; ".join(bad.errors)) from bad
        return answer({"taken": taken, "needs_restart": waiting})

    async def _pods(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pods with their containers, cgroups and counters"""
        runtime, usage = self._agent.runtime, self._agent.pod_usage()
        pods = [pod_body(pod, usage.get(key)) for key, pod in runtime.pods.items()]
        return answer({"source": runtime.source, "condition": runtime.condition, "count": runtime.count, "pods": pods})

    @operation(Operation(content=LINES))
    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        """container events, one JSON line each

        Beginning with the recent ones; a reader who lost some is told how many.
        """
        with self._agent.runtime.log.subscribe(replay=32) as events:

            async def next_line() -> bytes:
                event = await events.get()
                dropped = events.take_dropped()
                body = event.as_dict() | ({"dropped": dropped} if dropped else {})
                return json.dumps(body, separators=(",", ":")).encode()

            return await stream_lines(request, next_line)

    async def _self(self, request: web.BaseRequest) -> web.StreamResponse:
        """what the agent itself costs, and how its parts are doing"""
        agent = self._agent
        body = self_body(agent.cost, agent.source.lateness, self._own_cpu_ratio(), agent.source.failures)
        tasks: dict[str, Any] = {
            name: {"state": c.state, "failures": c.failures, "restarts": c.restarts, "last_error": c.last_error}
            for name, c in agent.supervisor.conditions.items()
        }
        return answer(
            {
                **body,
                "sampling": agent.sampling_body(),
                "tasks": tasks,
                "absent": agent.absent,
                "runtime": agent.runtime.condition,
                **({"kubernetes": kube_body(agent.kube)} if agent.kube else {}),
            }
        )

    def _own_cpu_ratio(self) -> float:
        """CPU since the last time somebody asked, at least a second ago."""
        if time.monotonic() - self._looked_s > 1.0:
            self._cpu_ratio, self._looked_s = self._agent.cost.cpu_ratio(), time.monotonic()
        return self._cpu_ratio

    @operation(Operation(content=TEXT))
    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        """Prometheus text"""
        agent = self._agent
        families = self_metrics(agent.cost, agent.source.lateness, agent.source.failures)
        if agent.board.sequence:
            families = status_metrics(agent.board.status, agent.board.age_s) + families
        absent = metrics.Family("carico_absent", "gauge", "1 for each signal this node does not offer.")
        for name in agent.absent:
            absent.add(1, signal=name)
        events = metrics.Family("carico_container_events_total", "counter", "Container events heard.")
        events.add(agent.runtime.log.total)
        refused = metrics.Family("carico_refused_total", "counter", "Beyond a client's limits.")
        for what in ("connections", "requests"):
            refused.add(agent.limiter.refused[what], what=what)
        period = metrics.Family("carico_sampling_period_seconds", "gauge", "Time between samples; longer when slowed.")
        period.add(agent.board.status.get("sampling", {}).get("period_s"))
        text = metrics.render([*families, absent, events, refused, period, *agent.plugins.metrics()])
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})


def kube_body(kube: KubeSide) -> dict[str, Any]:
    return {"condition": kube.condition, "requests": kube.client.requests, "writes": kube.publisher.writes}


def pod_body(pod: Pod, usage: PodUsage | None) -> dict[str, Any]:
    """One Pod for /v1/pods."""
    containers = [{"id": c.id, "name": c.name, "pid": c.pid, "paused": c.paused} for c in pod.containers]
    counters = {name: getattr(usage, name) for name in USAGE_FIELDS} if usage else None
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "counts": pod.counts,
        "started": pod.started_s,
        "cgroup": pod.cgroup,
        "inode": pod.inode,
        "containers": containers,
        "usage": counters,
    }


USAGE_FIELDS = (
    "cpu_usage_usec",
    "nr_periods",
    "nr_throttled",
    "throttled_usec",
    "memory_current",
    "cpu_pressure_usec",
    "memory_pressure_usec",
)
