"""`carico plane --serve`: looks at the control plane once per period, and keeps the reserve of seats."""

import asyncio
import fcntl
import json
import logging
import os
import signal
import socket
import time
from pathlib import Path
from typing import IO, Any

from aiohttp import web

from carico_agent.app.kubernetes import access_of
from carico_agent.kube.client import KubeClient
from carico_agent.kube.errors import KubeError
from carico_agent.kube.health import Health
from carico_agent.kube.leader import LeaderLease
from carico_agent.net import metrics
from carico_agent.net.buckets import TokenBucket
from carico_agent.net.http import ApiError, Handler, HttpServer, answer
from carico_agent.plane.control import MOST_MISSED, Step, decide
from carico_agent.plane.observer import Look, Observer
from carico_agent.plane.seats import NAME, Levels, Reserve
from carico_agent.plane.shares import ServerSeats, seats_of
from carico_agent.settings import KubernetesSettings, Settings
from carico_agent.supervise.cost import OwnCost
from carico_agent.supervise.files import replace_file
from carico_agent.supervise.notify import Notifier
from carico_agent.supervise.tasks import Supervisor

log = logging.getLogger(__name__)

SAVE_S = 600.0
GOODBYE_S = 8.0
"""The way out may take this long [s]; what is left then is in the note, for the next start or `carico restore`."""


class Note:
    """A file that says that a reserve of ours may stand on an API server; written before it, removed after it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "plane-reserve.json"

    def exists(self) -> bool:
        return self.path.exists()

    def write(self, kubernetes: KubernetesSettings) -> None:
        where = {"kubeconfig": kubernetes.kubeconfig, "context": kubernetes.context, "object": NAME}
        replace_file(self.path, json.dumps(where).encode(), mode=0o600, synced=True)

    def read(self) -> KubernetesSettings:
        where = json.loads(self.path.read_text())
        return KubernetesSettings(kubeconfig=str(where["kubeconfig"]), context=str(where["context"]))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


async def give_back(folder: Path) -> str:
    """For `carico restore` and `carico uninstall`: take a reserve back that a note names; empty: there is none.
    Raises KubeError or OSError; the note then stays."""
    note = Note(folder)
    if not note.exists():
        return ""
    with lock(folder):
        async with KubeClient(access_of(note.read())) as client:
            done = await Reserve(client).remove()
        note.remove()
    return done


def lock(folder: Path) -> IO[str]:
    """One instance per state folder; raises BlockingIOError."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "plane.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise BlockingIOError(error.errno, f"another carico plane uses {folder}; stop it first") from error
    return file


def load_curve(observer: Observer, folder: Path) -> None:
    """What an earlier run has learned; a damaged file is no reason not to start."""
    try:
        observer.learned.load(json.loads((folder / "plane-curve.json").read_text()), time.monotonic())
    except (OSError, ValueError):
        return


class SeatKeeper:
    """Carries out what `control.decide` says, and remembers what it came to."""

    def __init__(self, client: KubeClient, settings: Settings, note: Note) -> None:
        own = settings.plane
        self._settings, self._note = settings, note
        self._reserve = Reserve(client)
        identity = f"{socket.gethostname()}:{note.path.parent}"
        self.lease = LeaderLease(client, own.namespace, "carico-plane", identity, max(15.0, 3 * own.period_s))
        self.server = ServerSeats()
        self.step = Step("hold", why="starting")
        self.levels = Levels()
        self.shares = 0
        self._yielded = ""
        self._looked = False
        self._stable: dict[str, int] | None = None

    async def begin(self) -> None:
        """What an earlier run has left is taken back before anything else; once."""
        if not self._looked and self._note.exists() and await self._leads():
            log.info("%s", await self._reserve.remove())
            self._note.remove()

    async def keep(self, look: Look, missed: int) -> None:
        """One period; raises KubeError."""
        mode = self._settings.plane.seats
        if mode == "off" and self._looked and not self._note.exists():
            self.step = Step("hold", why="seats = 'off'")
            return
        self.levels = await self._reserve.levels()
        self._looked = True
        if look.seats and self._stable in (None, self.levels.all_shares):
            self.server.see(look.seats, self.levels.all_shares)
        self._stable = self.levels.all_shares
        leads = await self._leads() if mode == "write" or self.levels.ours else True
        held, found = self.shares if leads else 0, look.recommendation
        step = decide(mode, missed, self.levels, self.server.value, found, leads, held, self._yielded)
        await self._carry_out(step, leads)
        if step != self.step and step.why:
            log.info("seats: %s %s", step.action, step.why)
        self.step = step

    async def _carry_out(self, step: Step, leads: bool) -> None:
        ours = self.levels.ours
        self.shares = ours.shares if ours and not ours.edited else 0
        if leads and self.shares and not self._note.exists():  # left by one that was killed elsewhere: ours now
            self._note.write(self._settings.kubernetes)
        if step.action == "write":
            self._note.write(self._settings.kubernetes)
            if await self._reserve.write(step.shares, ours):
                self.shares = step.shares
                self._stable = {**self.levels.shares, NAME: step.shares}
        elif step.action == "remove":
            await self._reserve.remove()
            self._note.remove()
            self.shares, self._stable = 0, dict(self.levels.shares)
        elif step.action == "yield":
            self._note.remove()
            self.shares, self._yielded = 0, step.why

    async def _leads(self) -> bool:
        return await self.lease.hold(time.monotonic())

    async def end(self) -> None:
        """Everything back; raises KubeError, and then the note stays."""
        if self._note.exists() and await self._leads():
            log.info("%s", await self._reserve.remove())
            self._note.remove()
        await self.lease.release()

    def as_json(self) -> dict[str, Any]:
        computed = seats_of(self.server.value, self.levels.shares, self.shares) if self.levels.shares else {}
        return {
            "mode": self._settings.plane.seats,
            "state": self.step.action,
            "why": self.step.why,
            "reserve_shares": self.shares,
            "server_seats": self.server.value if self.server.known else None,
            "levels": computed,
            "leader": self.lease.holder,
        }


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
        self.look: Look | None = None
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
            await api.listen(*address(own_listen, self._settings.plane.allow_plaintext))
        self.supervisor.start("periods", self._periods)
        Notifier().ready()
        log.info("carico plane: API server %s, seats = %s", self.client.access.server, self._settings.plane.seats)
        try:
            await self._stopping.wait()
        finally:
            await self.supervisor.stop()
            await self._goodbye()
            await api.stop()
            await self.client.close()

    async def _goodbye(self) -> None:
        self._save()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self.keeper.end()
        except (KubeError, TimeoutError) as error:
            if self.note.exists():
                log.error("seats could not be given back (%s); `carico restore` will, or the next start", error)

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
        look = await self.observer.look()
        self.look = look
        self.missed = 0 if look.fresh else self.missed + 1
        await self.keeper.keep(look, self.missed)
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
        if self.missed >= MOST_MISSED:
            raise ApiError(503, f"no metrics for {self.missed} periods: {self.health.condition}", ok=False)
        return answer({"ok": True, "condition": self.health.condition})

    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """what `carico plane --json` says, and the seats"""
        seen = self.look.diagnosis.as_json() if self.look else None
        cost = {"cpu_s": self._cost.cpu_s(), "resident_bytes": self._cost.resident_bytes()}
        kube = {"requests": self.client.requests, "condition": self.health.condition}
        facts = {"seats": self.keeper.as_json(), "missed": self.missed, "pid": os.getpid()}
        return answer({"diagnosis": seen, **facts, "kubernetes": kube, "own": cost})

    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        text = metrics.render(self._families())
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})

    def _families(self) -> list[metrics.Family]:
        def gauge(name: str, help: str) -> metrics.Family:
            return metrics.Family(f"carico_plane_{name}", "gauge", help)

        families = {
            "arrivals_per_s": gauge("arrivals_per_second", "Requests per second, by component."),
            "served_per_core_s": gauge("served_per_core_second", "Requests that one core finishes in a second."),
            "cores": gauge("cores", "Cores in use."),
            "utilisation": gauge("utilisation_ratio", "Cores in use over cores that could be."),
            "waiting": gauge("waiting_requests", "Requests (or Pods, or keys) that wait."),
            "seats": gauge("seats", "Requests that may execute at once."),
            "throttled_ratio": gauge("throttled_ratio", "Throttled CFS periods over all."),
        }
        seen = self.look.diagnosis if self.look else None
        for row in seen.components if seen else ():
            for field, family in families.items():
                family.add(getattr(row, field), component=row.name)
        wish = seen.recommendation if seen else ""
        return [
            *families.values(),
            gauge("executing_requests", "Requests executing at once, mean of the window.").add(
                seen.executing if seen else None
            ),
            gauge("recommended_seats", "Seats recommended for all levels together.").add(
                wish["seats"] if isinstance(wish, dict) else None
            ),
            gauge("reserve_shares", "Shares of carico-reserve; 0 when there is none.").add(self.keeper.shares),
            gauge("missed_periods", "Periods without metrics of the API server.").add(self.missed),
            metrics.Family("carico_plane_requests_total", "counter", "Requests sent to the API server.").add(
                self.client.requests
            ),
            metrics.Family("process_cpu_seconds_total", "counter", "CPU time of this process.").add(self._cost.cpu_s()),
            metrics.Family("process_resident_memory_bytes", "gauge", "Resident memory of this process.").add(
                self._cost.resident_bytes()
            ),
        ]


def address(listen: str, anywhere: bool = False) -> tuple[str, int]:
    """Host and port, of loopback unless `anywhere`; raises ValueError.

    >>> address("127.0.0.1:9760"), address("0.0.0.0:80", anywhere=True)
    (('127.0.0.1', 9760), ('0.0.0.0', 80))
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"plane.listen: {listen!r}: HOST:PORT is expected")
    if not anywhere and host.strip("[]") not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError(f"plane.listen: {listen!r} is not loopback; set plane.allow_plaintext if that is meant")
    return host.strip("[]"), int(port)
