"""The plugin host in the agent: what it is shown, and what the local API says of it.

A plugin's own code never runs on the event loop: it may wait for its lock or for a disk without end. Questions go to
threads of their own, at most four at a time; who finds all of them taken, or gets no answer in time, gets the plugin's
last report instead.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiohttp import web

from carico_agent.lib.kube.declared import DeclaredPod
from carico_agent.lib.net.http import ApiError, Handler, answer, request_id
from carico_agent.lib.net.metrics import Family
from carico_agent.lib.supervise.workers import Workers, WorkersBusy
from carico_agent.node.plugin_host.host import PluginHost
from carico_agent.node.plugin_host.view import ViewMaker
from carico_agent.node.pods.usage import PodUsage
from carico_agent.node.pods.watch import Runtime
from carico_agent.settings import Settings

MAX_QUESTIONS = 4
ANSWER_WITHIN_S = 2.0


class PluginApi:
    """Starts and stops the host, and answers for it."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        usage: Callable[[], Mapping[str, PodUsage]],
        status: Callable[[], Mapping[str, Any]],
        declared: Callable[[str], DeclaredPod | None],
    ) -> None:
        """`status()`: what /v1/status says; `declared(uid)`: what the API server has about a Pod."""
        view = ViewMaker(lambda: runtime.pods, usage, status, settings.node.root, declared)
        self._host = PluginHost(settings.plugins, view, settings.journal_path, settings.node.root)
        self._questions = Workers("questions to plugins", MAX_QUESTIONS)
        self._life = Workers("the plugin host", 1)

    async def start(self) -> None:
        await self._life.run(self._host.start)

    @property
    def running(self) -> bool:
        """Some plugin runs."""
        return bool(self._host.runners)

    async def stop(self) -> None:
        await self._life.run(self._host.stop)

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {"/v1/plugins": {"GET": self._list}, "/v1/plugins/{id}": {"GET": self._show}}

    async def _list(self, request: web.BaseRequest) -> web.StreamResponse:
        """plugins: installed, running, refused"""
        return answer(self._host.overview())

    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """what one plugin has to say"""
        name, question = request_id(request), dict(request.query)
        found = await self._ask(name, question) if question else self._host.last_report(name)
        if found is None:
            raise ApiError(404, f"no plugin {name!r} runs here; GET /v1/plugins lists them")
        return answer(found)

    async def _ask(self, name: str, question: dict[str, str]) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await self._questions.run(self._host.answer, name, question)
        except (WorkersBusy, TimeoutError):
            return self._host.last_report(name)

    def metrics(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for metric in self._host.metrics():
            family = families.setdefault(metric.name, Family(metric.name, metric.kind, metric.help or metric.name))
            family.add(metric.value, **metric.labels)
        yield from families.values()
