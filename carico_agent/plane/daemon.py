"""`carico plane --serve`: looks at the control plane once per period, keeps the reserve of seats (reserve.py) and
shows both over HTTP."""

import asyncio
import json
import logging
import os
import signal
import time
from pathlib import Path

from aiohttp import web

from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kubernetes import access_of
from carico_agent.lib.net.address import BadAddress, is_loopback, split
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.net.http import ApiError, Handler, HttpServer, answer, answer_metrics
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.supervise.files import replace_file
from carico_agent.lib.supervise.notify import Notifier
from carico_agent.lib.supervise.tasks import Supervisor
from carico_agent.plane.control import MAX_MISSED
from carico_agent.plane.metrics import families
from carico_agent.plane.observer import Observation, Observer
from carico_agent.plane.reserve import Note, SeatKeeper, lock
from carico_agent.settings import Settings

log = logging.getLogger(__name__)

SAVE_S = 600.0
GOODBYE_S = 8.0
"""The way out may take this long [s]; what is left then is in the note, for the next start or `carico restore`."""


def load_curve(observer: Observer, folder: Path) -> None:
    """What an earlier run has learned; a damaged file is no reason not to start."""
    try:
        observer.learned.load(json.loads((folder / "plane-curve.json").read_text()), time.monotonic())
    except (OSError, ValueError):
        return


class PlaneServer:
    """`run` serves until SIGTERM or SIGINT."""

    def __init__(self, settings: Settings) -> None:
        self._settings, own = settings, settings.plane
        # the metrics and three small requests per period; a burst when it starts
        self.client = KubeClient(access_of(settings.kubernetes), TokenBucket(per_s=2.0, burst=10))
        self.observer = Observer(self.client, own)
        self.note = Note(settings.state_path)
        self.keeper = SeatKeeper(self.client, settings, self.note)
        self.health = Health("plane")
        self.supervisor = Supervisor()
        self.missed = 0
        self.observed: Observation | None = None
        self._saved_s = time.monotonic()
        self._cost = OwnCost()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        with lock(self._settings.state_path):
            await self._serve()

    async def _serve(self) -> None:
        load_curve(self.observer, self._settings.state_path)
        api = HttpServer(self.routes())
        if own_listen := self._settings.plane.listen:
            await api.listen(*listen_address(own_listen, self._settings.plane.allow_plaintext))
        self.supervisor.start("periods", self._periods)
        Notifier().ready()
        log.info("carico plane: API server %s, seats = %s", self.client.access.server, self._settings.plane.seats)
        try:
            await self._stopping.wait()
        finally:
            await self.supervisor.stop()
            await self._goodbye()
            await api.stop()
            await self.observer.aclose()
            await self.client.close()

    async def _goodbye(self) -> None:
        self._save()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self.keeper.end()
        except (KubeError, TimeoutError) as error:
            if self.note.exists():
                log.error("could not remove the reserve (%s); the next start or `carico restore` does", error)

    async def _periods(self) -> None:
        while True:
            started_s = time.monotonic()
            try:
                await self.keeper.begin()
                await self._period()
                self.health.good("period")
            except KubeError as error:
                self.health.bad("period", error)
            await asyncio.sleep(max(0.1, self._settings.plane.period_s - (time.monotonic() - started_s)))

    async def _period(self) -> None:
        observed = await self.observer.observe()
        self.observed = observed
        self.missed = 0 if observed.fresh else self.missed + 1
        await self.keeper.keep(observed, self.missed)
        if time.monotonic() - self._saved_s > SAVE_S:
            self._save()

    def _save(self) -> None:
        self._saved_s = time.monotonic()
        rows = self.observer.learned.save(self._saved_s)
        try:
            replace_file(self._settings.state_path / "plane-curve.json", json.dumps(rows).encode())
        except OSError as error:
            log.warning("what was learned is not kept: %s", error)

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {
            "/healthz": {"GET": self._healthz},
            "/v1/plane": {"GET": self._show},
            "/metrics": {"GET": self._metrics},
        }

    async def _healthz(self, request: web.BaseRequest) -> web.StreamResponse:
        """whether the API server is read"""
        if self.missed >= MAX_MISSED:
            raise ApiError(503, f"no metrics for {self.missed} periods: {self.health.condition}", ok=False)
        return answer({"ok": True, "condition": self.health.condition})

    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """what `carico plane --json` says, and the seats"""
        seen = self.observed.diagnosis.as_json() if self.observed else None
        cost = {"cpu_s": self._cost.cpu_s(), "resident_bytes": self._cost.resident_bytes()}
        kube = {"requests": self.client.requests, "condition": self.health.condition}
        facts = {"seats": self.keeper.as_json(), "missed": self.missed, "pid": os.getpid()}
        return answer({"diagnosis": seen, **facts, "kubernetes": kube, "own": cost})

    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        seen = self.observed.diagnosis if self.observed else None
        return answer_metrics(families(seen, self.keeper.shares, self.missed, self.client.requests))


def listen_address(listen: str, allow_plaintext: bool = False) -> tuple[str, int]:
    """Host and port, of loopback unless `allow_plaintext`; raises BadAddress.

    >>> listen_address("127.0.0.1:9765"), listen_address("0.0.0.0:80", allow_plaintext=True)
    (('127.0.0.1', 9765), ('0.0.0.0', 80))
    """
    try:
        host, port = split(listen)
    except BadAddress as bad:
        raise BadAddress(f"plane.listen: {bad}") from bad
    if not allow_plaintext and not is_loopback(host):
        raise BadAddress(f"plane.listen: {listen!r} is not loopback; set plane.allow_plaintext if that is meant")
    return host, port
