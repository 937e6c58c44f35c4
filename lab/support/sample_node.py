"""An agent's API with an invented node behind it: the real server, the latest status and history,
statuses made up a second apart.

For what a test machine does not have: fourteen workloads, throttled Pods, reservations, plugins that wrote something,
and names full of markup. `python -m lab.support.sample_node SOCKET [--hostile] [--learning NUMBER LOW HIGH]` serves
until it is terminated.
"""

import asyncio
import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from carico_agent.core import CapacityModel, ModelConfig, PodSample
from carico_agent.lib.net.http import Handler, HttpServer, answer
from carico_agent.lib.net.times import rfc3339
from carico_agent.node.history import StatusHistory
from carico_agent.node.outlook import OutlookRoutes
from carico_agent.node.pods.events import Event
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.status import Status, WorkloadStatus
from carico_agent.node.publish.status_routes import status_routes

CORES, MEMORY = 8, 32 * 2**30
HOSTILE = '<img src=x onerror="document.title=`owned`"><script>document.title="owned"</script>&amp;"\'$plain'
WORKLOADS = (  # name, Pods, cpu and memory of one as a share, arrivals, per_node
    ("shop/web", 6, 0.031, 0.018, 0.52, False),
    ("shop/cache", 2, 0.008, 0.061, 0.06, False),
    ("shop/checkout", 3, 0.022, 0.024, 0.17, False),
    ("batch/thumbnails", 2, 0.058, 0.015, 0.25, False),
    ("kube-system/kube-proxy", 1, 0.003, 0.004, 0.0, True),
    ("monitoring/node-exporter", 1, 0.002, 0.002, 0.0, True),
)
JOBS = (  # name, steps, steps done at the start
    ("thumbnails", 5000.0, 1800.0),
    ("training", 20000.0, 14500.0),
)


class SampleNode:
    """Status, Pods and the rest, as functions of the time."""

    def __init__(self, hostile: bool = False, learning: tuple[float, ...] = ()) -> None:
        """`learning`: Pod-Capacity, low and high of a node that still learns."""
        self.mark, self._learning = HOSTILE if hostile else "", learning

    def status(self, t: float) -> Status:
        measured = self._measured(t)
        if not self._learning:
            return measured
        capacity, low, high = self._learning
        return replace(measured, mode="learning", pod_capacity=capacity, low=low, high=high, available=int(capacity))

    def _measured(self, t: float) -> Status:
        wave = 0.12 * math.sin(t / 95.0) + 0.04 * math.sin(t / 11.0)
        workloads = [self._workload(*row, wave=wave) for row in WORKLOADS]
        host = {"cpu": 0.06 + 0.01 * math.sin(t / 7.0), "memory": 0.09}
        used = {name: host[name] + sum(k.pods * (k.cost[name] or 0.0) for k in workloads) for name in host}
        room = {"cpu": 1.0 - used["cpu"], "memory": 0.85 - used["memory"]}
        cost = {"cpu": 0.036, "memory": 0.02}
        capacity = max(0.0, min(room[name] / cost[name] for name in room))
        workloads = [self._fits(workload, room) for workload in workloads]
        return Status(
            node=f"node-7{self.mark}",
            time=rfc3339(t, "milliseconds"),
            pod_capacity=round(capacity, 3),
            low=round(0.82 * capacity, 3),
            high=round(1.16 * capacity + 0.4, 3),
            slots=round(capacity + 15, 3),
            pods=15,
            mode="measured",
            limiting=min(room, key=lambda name: room[name] / cost[name]),
            cost_vector=cost,
            usage={name: round(value, 4) for name, value in used.items()},
            host=host,
            room=room,
            pods_measured=True,
            sizes={"cpu": 2.0 * CORES, "memory": float(MEMORY)},
            limits={"cpu": 1.0, "memory": 0.85},
            workloads=tuple(workloads),
            reserved=2,
            available=int(capacity) - 2,
            runtime=f"containerd 1.7{self.mark}",
            publishers={"socket": "listening"},
        )

    def _workload(
        self, name: str, pods: int, cpu: float, memory: float, arrivals: float, per_node: bool, wave: float
    ) -> WorkloadStatus:
        cost = {"cpu": cpu * (1 + 2 * wave), "memory": memory}
        return WorkloadStatus(f"{name}{self.mark}", pods, cost, None, None, per_node, arrivals=arrivals, trusted=True)

    @staticmethod
    def _fits(workload: WorkloadStatus, room: dict[str, float]) -> WorkloadStatus:
        fits = {name: room[name] / (workload.cost[name] or math.inf) for name in room}
        first = min(fits, key=lambda name: fits[name])
        return replace(workload, fits=fits[first], limiting=first, low=0.8 * fits[first], high=1.2 * fits[first])

    def pods(self, t: float) -> list[dict[str, Any]]:
        return [
            self._pod(t, name, number, cpu, memory)
            for name, count, cpu, memory, *_ in WORKLOADS
            for number in range(count)
        ]

    def _pod(self, t: float, workload: str, number: int, cpu: float, memory: float) -> dict[str, Any]:
        namespace, _, name = workload.partition("/")
        throttled = 0.35 if workload == "shop/checkout" else 0.08 if workload == "shop/web" and number == 0 else 0.0
        usage = {
            "t": t,
            "cpu_usage_usec": int(1e6 * t * cpu * 2 * CORES * (1 + 0.1 * number)),
            "nr_periods": int(1000 * t) if throttled else None,
            "nr_throttled": int(1000 * t * throttled) if throttled else None,
            "throttled_usec": int(1e4 * t * throttled) if throttled else None,
            "memory_current": int(memory * MEMORY * (1 + 0.05 * number)),
            "cpu_pressure_usec": int(1e6 * t * (0.02 + throttled)),
            "memory_pressure_usec": 0,
        }
        full = f"{name}-{7 * number + 5:x}c9d{self.mark}"
        containers = [{"id": "c", "name": name, "pid": 1, "paused": False}]
        return {
            "name": full,
            "namespace": namespace,
            "uid": f"{workload}{number}",
            "counts": namespace != "monitoring",
            "started": 0.0,
            "cgroup": f"/pods/{full}",
            "inode": number,
            "containers": containers,
            "usage": usage,
        }

    def _job(self, t: float, name: str, total: float, start_s: float) -> dict[str, Any]:
        done = (start_s + 7 * t) % total
        left = {"left_cpu_s": round((total - done) / 7, 1), "cores": 0.8, "left_s": round((total - done) / 5, 1)}
        return {
            "name": f"{name}-5c9d{self.mark}",
            "namespace": "batch",
            "uid": name,
            "workload": f"batch/{name}",
            "source": "cpu",
            "done": done,
            "total": total,
            "ratio": round(done / total, 4),
            "runs": 1,
            "age_s": 1.0,
            "stale": False,
            **left,
            "end": None,
            "uncertain": False,
        }

    def body(self, path: str) -> dict[str, Any]:
        mark, t = self.mark, time.monotonic()
        bodies: dict[str, Any] = {
            "/v1/pods": lambda: {"source": "containerd", "condition": "", "count": 15, "pods": self.pods(t)},
            "/v1/progress": lambda: {"socket": "/run/carico/progress", "jobs": [self._job(t, *row) for row in JOBS]},
            "/v1/reservations": lambda: {
                "available": 3,
                "reservations": [{"id": "r1", "pods": 2, "holder": f"my-scheduler{mark}", "expires_in_s": 30 - t % 30}],
            },
            "/v1/plugins": lambda: {
                "dry_run": False,
                "plugins": [
                    {"name": "throttling", "state": "running", "detail": f"looks at 15 Pods{mark}"},
                    {"name": "cpu_pinning", "state": "running", "detail": ""},
                ],
                "owners": [],
                "recent": [
                    {
                        "plugin": "cpu_pinning",
                        "cgroup": f"/pods/web-5c9d{mark}",
                        "key": "cpuset.cpus",
                        "state": state,
                        "old": old,
                        "new": new,
                        "detail": mark,
                    }
                    for state, old, new in (("written", "0-7", "2-3"), ("restored", "2-3", "0-7"))
                ],
            },
            "/v1/plugins/throttling": lambda: {
                "report": {
                    "pods": [
                        {
                            "pod": f"shop/checkout-5c9d{mark}",
                            "throttled_ratio": 0.35,
                            "cause": "own quota",
                            "remedy": "raise the limit",
                            "text": f"It runs 3 threads under a limit of 1 CPU.{mark}",
                        }
                    ]
                }
            },
            "/v1/self": lambda: {
                "cpu_ratio": 0.0064,
                "cpu_s": 12.0,
                "resident_bytes": 61_000_000,
                "ticks": 18_000,
                "missed_ticks": 0,
                "failed_ticks": 0,
                "lateness_ms": {"p50": 0.1, "p99": 0.42, "most": 3.0},
                "stages": {},
                "sampling": {"period_s": 0.1, "slowed": None},
                "tasks": {},
                "absent": {},
                "publishers": {},
                "runtime": f"containerd 1.7.27, 15 Pods{mark}",
            },
        }
        made: dict[str, Any] = bodies[path]()
        return made


def fill(history: StatusHistory, node: SampleNode, set_clock: Any, now_s: float) -> None:
    """A quarter of an hour that has passed already."""
    for second in range(900, 0, -1):
        set_clock(now_s - second)
        history.record(node.status(now_s - second))
    for ago_s, what, pod in ((700, "start", "batch/thumbnails-5c9d"), (420, "exit", "shop/web-1"), (180, "oom", "x/y")):
        topic = f"/tasks/{what}"
        namespace, _, name = pod.partition("/")
        history.mark(Event(now_s - ago_s, 0.0, topic, pod_name=name + node.mark, pod_namespace=namespace))


def a_week(now_s: float) -> CapacityModel:
    """A model whose outlook has seen eight Pods for a week: busy from 10 to 14 h UTC, half of it at the weekend."""
    model = CapacityModel(("cpu", "memory"), ModelConfig(cores=CORES))
    for slot in range(7 * 288):
        t = now_s - (7 * 288 - 1 - slot) * 300.0
        hour, weekend = t % 86400 / 3600, int(t // 86400 + 4) % 7 in (0, 6)
        busy = math.exp(-((hour - 12) ** 2) / 4) * (0.5 if weekend else 1.0)
        usage = (0.02 + 0.04 * busy, 0.04 + 0.005 * busy)
        model.outlook.observe(t, [PodSample(f"web-{i}", "shop/web", usage) for i in range(8)])
    return model


async def serve(path: Path, node: SampleNode) -> None:
    latest, wall = LatestStatus(5.0), [0.0]
    history = StatusHistory(("cpu", "memory"), clock=lambda: wall[0])
    fill(history, node, lambda t: wall.__setitem__(0, t), time.time())

    async def send(request: web.BaseRequest) -> web.StreamResponse:
        return answer(node.body(request.path))

    names = ("/v1/pods", "/v1/progress", "/v1/reservations", "/v1/plugins", "/v1/plugins/throttling", "/v1/self")
    routes: dict[str, dict[str, Handler]] = {name: {"GET": send} for name in names}
    week = a_week(time.time())
    http = HttpServer(routes | status_routes(latest) | history.routes() | OutlookRoutes(lambda: week).routes())
    await http.start(path)
    while True:
        wall[0] = time.time()
        latest.publish(node.status(wall[0]))
        history.record(latest.status)
        await asyncio.sleep(1.0)


if __name__ == "__main__":
    learning = tuple(map(float, sys.argv[sys.argv.index("--learning") + 1 :])) if "--learning" in sys.argv else ()
    asyncio.run(serve(Path(sys.argv[1]), SampleNode("--hostile" in sys.argv, learning)))
