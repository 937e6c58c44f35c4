"""The plugin host in the agent: what it is shown, and what the local API says of it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiohttp import web

from carico_agent.net.http import ApiError, Handler, answer, request_id
from carico_agent.net.metrics import Family
from carico_agent.plugin_host.host import Host
from carico_agent.plugin_host.view import ViewMaker
from carico_agent.runtime.usage import PodUsage
from carico_agent.runtime.watch import Runtime
from carico_agent.settings import Settings


class PluginDesk:
    """Answers for the host."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        usage: Callable[[], Mapping[str, PodUsage]],
        status: Callable[[], Mapping[str, Any]],
    ) -> None:
        view = ViewMaker(lambda: runtime.pods, usage, status, settings.node.root)
        self.host = Host(settings.plugins, view, settings.journal_path, settings.node.root)

    def start(self) -> None:
        self.host.start()

    def stop(self) -> None:
        self.host.stop()

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
