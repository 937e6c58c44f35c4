"""The plugin host in the agent: what plugins see, and what the local API says of them."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from carico_agent import plugin_api as api
from carico_agent.plugin_host.facts import make_reader, read_facts, read_usage
from carico_agent.plugin_host.host import Host
from carico_agent.publish.api import ApiError, Handler, answer, request_id
from carico_agent.publish.metrics import Family
from carico_agent.runtime.cgroups import Group, Locator
from carico_agent.runtime.pods import Member, Pod
from carico_agent.runtime.usage import PodUsage
from carico_agent.runtime.watch import Runtime
from carico_agent.settings import Settings

FACTS_EVERY_S = 60.0


class PluginDesk:
    """Builds the View from the runtime's Pods; answers for the host."""

    def __init__(self, settings: Settings, runtime: Runtime, usage: Callable[[], Mapping[str, PodUsage]],
                 status: Callable[[], Mapping[str, Any]]) -> None:  # fmt: skip
        self._root, self._runtime, self._usage, self._status = settings.node.root, runtime, usage, status
        self._locator: Locator | None = None
        self._read = make_reader()
        self._facts: tuple[float, api.NodeFacts] | None = None
        self.host = Host(settings.plugins, self._view, settings.journal_path, settings.node.root)

    def start(self) -> None:
        self.host.start()

    def stop(self) -> None:
        self.host.stop()

    # ---- what plugins see (called from their threads)

    def _view(self) -> api.View:
        now_s = time.monotonic()
        if self._locator is None:
            self._locator = Locator(Path(self._root))
        if self._facts is None or now_s - self._facts[0] > FACTS_EVERY_S:
            mount = f"{self._root.rstrip('/')}/{self._locator.layout.main}"
            self._facts = (now_s, read_facts(self._root, mount))
        usage = self._usage()
        pods = tuple(self._pod(pod, usage.get(key)) for key, pod in self._runtime.pods.items() if pod.inode)
        return api.View(now_s, self._facts[1], pods, self._read, self._status())

    def _pod(self, pod: Pod, used: PodUsage | None) -> api.Pod:
        assert self._locator is not None
        group = self._locator.at(pod.cgroup)
        counters = _usage(used)
        containers = tuple(self._container(member, counters if len(pod.containers) == 1 else None)
                           for member in pod.containers)  # fmt: skip
        return api.Pod(pod.key, pod.name, pod.namespace, pod.uid, _folder(group), pod.inode, containers, counters,
                       pod.labels)  # fmt: skip

    def _container(self, member: Member, counters: api.Usage | None) -> api.Container:
        assert self._locator is not None
        group = self._locator.leaf(member.pid, member.id)
        folder = _folder(group)
        return api.Container(member.id, member.name, folder, group.inode if group else 0, member.pid,
                             counters or read_usage(self._read, folder))  # fmt: skip

    # ---- what others hear

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {"/v1/plugins": {"GET": self._list}, "/v1/plugins/{id}": {"GET": self._show}}

    async def _list(self, request: web.BaseRequest) -> web.StreamResponse:
        """plugins: installed, running, refused"""
        return answer(self.host.overview())

    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """what one plugin has to say"""
        found = self.host.answer(request_id(request), dict(request.query))
        if found is None:
            raise ApiError(404, f"no plugin {request_id(request)!r} runs here; GET /v1/plugins lists them")
        return answer(found)

    def metrics(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for metric in self.host.metrics():
            family = families.setdefault(metric.name, Family(metric.name, metric.kind, metric.help or metric.name))
            family.add(metric.value, **metric.labels)
        yield from families.values()


def _folder(group: Group | None) -> str:
    """The folder a plugin reads and writes: v2, or on older nodes that of the v1 cpu controller."""
    if group is None:
        return ""
    return group.controllers.get("cpu") or group.unified or next(iter(group.controllers.values()), "")


def _usage(used: PodUsage | None) -> api.Usage:
    if used is None:
        return api.Usage()
    totals = {"cpu": used.cpu_pressure_usec, "memory": used.memory_pressure_usec}
    stalls = {name: api.Stall(total) for name, total in totals.items() if total is not None}
    return api.Usage(used.cpu_usage_usec, used.nr_periods, used.nr_throttled, used.throttled_usec,
                     used.memory_current, stalls)  # fmt: skip
