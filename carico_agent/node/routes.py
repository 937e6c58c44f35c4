"""What the agent answers about itself, its Pods and its events."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from aiohttp import web

from carico_agent.lib.net.http import ApiError, Handler, answer, stream_lines
from carico_agent.lib.net.openapi import LINES, Operation, operation
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.supervise.tasks import Condition
from carico_agent.lib.supervise.workers import WorkersBusy
from carico_agent.node.counters import PodCounters
from carico_agent.node.own_cost import self_body
from carico_agent.node.pods.pods import Pod
from carico_agent.node.pods.usage import PodUsage
from carico_agent.node.pods.watch import Runtime
from carico_agent.node.publish.publisher import Publisher
from carico_agent.node.reload import Configuration
from carico_agent.node.source import Source
from carico_agent.settings import BadSettings


class PodRoutes:
    """Pods and container events."""

    def __init__(self, runtime: Runtime, counters: PodCounters) -> None:
        self._runtime, self._counters = runtime, counters

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {"/v1/pods": {"GET": self._pods}, "/v1/events": {"GET": self._events}}

    async def _pods(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pods with their containers, cgroups and counters"""
        runtime, usage = self._runtime, await self._counters.recent()
        pods = [pod_body(pod, usage.get(key)) for key, pod in runtime.pods.items()]
        return answer({"source": runtime.source, "condition": runtime.condition, "count": runtime.count, "pods": pods})

    @operation(Operation(content=LINES))
    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        """container events, one JSON line each

        Beginning with the recent ones; a reader who lost some gets their number.
        """
        with self._runtime.log.subscribe(replay=32) as events:

            async def next_line() -> bytes:
                event = await events.get()
                dropped = events.take_dropped()
                body = event.as_dict() | ({"dropped": dropped} if dropped else {})
                return json.dumps(body, separators=(",", ":")).encode()

            return await stream_lines(request, next_line)


class SelfRoutes:
    """What the agent itself costs, how its parts are doing, and its configuration."""

    def __init__(
        self,
        cost: OwnCost,
        source: Source,
        runtime: Runtime,
        tasks: Mapping[str, Condition],
        publishers: Sequence[Publisher],
        configuration: Configuration,
    ) -> None:
        self._cost, self._source, self._runtime, self._tasks = cost, source, runtime, tasks
        self._publishers, self._configuration = publishers, configuration
        self._cpu_ratio, self._looked_s = 0.0, 0.0

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {"/v1/self": {"GET": self._self}, "/v1/reload": {"POST": self._reload}}

    async def _self(self, request: web.BaseRequest) -> web.StreamResponse:
        """what the agent itself costs, and how its parts are doing"""
        producer = self._source.producer
        tasks: dict[str, Any] = {
            name: {"state": c.state, "failures": c.failures, "restarts": c.restarts, "last_error": c.last_error}
            for name, c in self._tasks.items()
        }
        return answer(
            {
                **self_body(self._cost, producer.lateness, producer.worked, self._own_cpu_ratio(), producer.failures),
                "dropped_samples": self._source.queue.dropped,
                "sampling": asdict(self._source.status()),
                "tasks": tasks,
                "absent": self._source.absent,
                "runtime": self._runtime.condition,
                "publishers": {one.name: {"condition": one.condition, **one.counters} for one in self._publishers},
            }
        )

    def _own_cpu_ratio(self) -> float:
        """CPU since the last request, at least a second ago."""
        if time.monotonic() - self._looked_s > 1.0:
            self._cpu_ratio, self._looked_s = self._cost.cpu_ratio(), time.monotonic()
        return self._cpu_ratio

    @operation(
        Operation(
            needs="root", errors={400: "the configuration has errors; the old one stays", 503: "it cannot be read now"}
        )
    )
    async def _reload(self, request: web.BaseRequest) -> web.StreamResponse:
        """read the configuration again, as SIGHUP does"""
        try:
            taken, waiting = await self._configuration.reload()
        except BadSettings as bad:
            raise ApiError(400, "; ".join(bad.errors)) from bad
        except (WorkersBusy, TimeoutError) as error:
            raise ApiError(503, "the disk does not answer; the old configuration stays") from error
        return answer({"taken": taken, "needs_restart": waiting})


def pod_body(pod: Pod, usage: PodUsage | None) -> dict[str, Any]:
    """One Pod for /v1/pods."""
    containers = [{"id": c.id, "name": c.name, "pid": c.pid, "paused": c.paused} for c in pod.containers]
    counters = {name: getattr(usage, name) for name in USAGE_FIELDS} if usage else None
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "workload": pod.workload,
        "per_node": pod.per_node,
        "counts": pod.counts,
        "started": pod.started_s,
        "cgroup": pod.cgroup,
        "inode": pod.inode,
        "containers": containers,
        "usage": counters,
    }


USAGE_FIELDS = (
    "t",
    "cpu_usage_usec",
    "nr_periods",
    "nr_throttled",
    "throttled_usec",
    "memory_current",
    "cpu_pressure_usec",
    "memory_pressure_usec",
)
