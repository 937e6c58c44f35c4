"""The agent: sampling thread, runtime, local socket, put together and kept running."""

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

from carico_agent.app import state
from carico_agent.app.kubernetes import KubeSide
from carico_agent.app.pipeline import Pipeline, model_config
from carico_agent.app.plugins import PluginDesk
from carico_agent.app.reload import take_over
from carico_agent.app.reserve import ReservationDesk
from carico_agent.app.routes import Routes
from carico_agent.app.sampling import Live, Replay, Sampling
from carico_agent.app.status import human_line, status_of
from carico_agent.core import CapacityModel
from carico_agent.federation.client import FederationClient
from carico_agent.federation.contribution import Contribution, GlobalView
from carico_agent.net.address import split
from carico_agent.net.http import HttpServer
from carico_agent.net.limits import Limits, RateLimiter
from carico_agent.net.tls import TlsFiles, server_context
from carico_agent.publish.board import Board
from carico_agent.publish.status_routes import status_routes
from carico_agent.runtime.events import Event
from carico_agent.runtime.usage import PodUsage
from carico_agent.runtime.watch import discover
from carico_agent.schedule.reservations import Reservations
from carico_agent.settings import BadSettings, Settings
from carico_agent.supervise.budget import Allowance, Pace
from carico_agent.supervise.cost import OwnCost
from carico_agent.supervise.files import replace_file
from carico_agent.supervise.notify import Notifier
from carico_agent.supervise.tasks import Supervisor
from carico_agent.telemetry import NodeReader, Root, TraceWriter, read_trace

log = logging.getLogger(__name__)

SAVE_EVERY_S = 60.0
UNUSED_S = 60.0
"""Files of Pods' cgroups are closed when nobody has looked at their counters for so long."""


def limits_of(settings: Settings) -> Limits:
    told = settings.clients
    return Limits(told.connections, told.requests_per_s)


def allowance_of(settings: Settings) -> Allowance:
    told = settings.budget
    return Allowance(told.cpu_ratio, 1e6 * told.resident_mb, told.pressure_ratio, told.calm_s)


class Agent:
    """One node's agent. `run` returns when it is told to stop (SIGTERM, SIGINT) or a replay has ended."""

    def __init__(
        self,
        settings: Settings,
        record: str | None = None,
        replay: str | None = None,
        speed: float = 1.0,
        repeat: bool = False,
        say: Callable[[str], None] | None = None,
        load: Callable[[], Settings] | None = None,
    ) -> None:
        self.settings = settings
        self._load = load
        self.node = settings.node.name or os.environ.get("NODE_NAME") or socket.gethostname()
        self.cost = OwnCost()
        self.board = Board(settings.socket.ttl_s)
        self.runtime = discover(settings)
        self.supervisor = Supervisor()
        self.absent: dict[str, str] = {}
        self._usage: tuple[float, Mapping[str, PodUsage]] = (-inf, {})
        self.desk = ReservationDesk(
            Reservations(settings.reservations.most, settings.reservations.most_ttl_s, settings.clients.reservations),
            settings.state_path / "reservations.json",
            self._room,
            self._publish_soon,
        )
        self.kube = KubeSide.of(settings.kubernetes, self.node, self.board, self._counted)
        self.plugins = PluginDesk(settings, self.runtime, self.pod_usage, lambda: self.board.status)
        self.limiter = RateLimiter(limits_of(settings))
        self.pace = Pace(allowance_of(settings))
        self._say = say
        self._notifier = Notifier()
        self._stopping = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None
        self._publishing = False
        self._replaying = replay is not None
        self._unsaved = ""
        self.source = self._replay(replay, speed, repeat) if replay else self._live(record)
        self.federation = FederationClient(
            settings.federation, self.node, self.resources, self._contribution, self._learned
        )

    def _live(self, record: str | None) -> Live:
        sampling = self.settings.sampling
        reader = NodeReader(Root(self.settings.node.root), io=sampling.io, network=sampling.network)
        self.absent = reader.absent
        for why in reader.absent.values():
            log.warning("not available here: %s", why)
        self._open_pipeline(reader.resources, reader.cores, resume=True)
        recorder = TraceWriter(record, self.node, reader.cores, reader.resources) if record else None
        return Live(
            reader, self.runtime, self._sampling, self.cost, self.pace, sampling, self._wake(self._publish), recorder
        )

    def _replay(self, path: str, speed: float, repeat: bool) -> Replay:
        header, _ = read_trace(path)
        self._open_pipeline(header.resources, header.cores)
        return Replay(
            lambda: read_trace(path)[1],
            self._sampling,
            speed,
            repeat,
            self._wake(self._publish),
            self._wake(self._stopping.set),
        )

    def _open_pipeline(self, resources: tuple[str, ...], cores: int, resume: bool = False) -> None:
        self.resources = resources
        known = {"cpu": 2.0 * cores, "memory": float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))}
        self._sizes = tuple(known.get(name, 1.0) for name in resources)
        config = model_config(self.settings, cores)
        saved = state.load(self._state_file, resources, config) if resume else None
        self._sampling = Sampling(Pipeline(saved or CapacityModel(resources, config)), self.cost)

    def _wake(self, call: Callable[[], None]) -> Callable[[], None]:
        """`call` in the event loop, from the sampling thread."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(call)

        return wake

    async def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload_or_say_why)
        api = HttpServer(
            {**status_routes(self.board), **Routes(self).all(), **self.desk.routes(), **self.plugins.routes()},
            self.limiter,
        )
        await api.start(self.settings.socket_path, self.settings.socket.group)
        await self._listen_on_tcp(api)
        if not self._replaying:
            self.runtime.look()
        self.source.start()
        if self.settings.federation.aggregators:
            self.supervisor.start("federation", self.federation.run)
            self.supervisor.start("federation-age", self._forget_old_view)
        if not self._replaying:
            self.runtime.listen(self._on_event)
            self.supervisor.start("runtime", self.runtime.run)
            self.supervisor.start("state", self._keep_state)
            await asyncio.to_thread(self.plugins.start)
        if self.kube is not None:
            self.supervisor.start("kubernetes", self.kube.run)
        gc.collect()
        gc.freeze()  # what lives from here on is small: collections stay cheap
        log.info("carico agent on %s: socket %s", self.node, self.settings.socket_path)
        try:
            await self._stopping.wait()
        finally:
            self._notifier.stopping()
            self.source.stop()
            await asyncio.to_thread(self.plugins.stop)
            await self.supervisor.stop()
            if self.kube is not None:
                await self.kube.stop()
            await api.stop()
            self._save_state()

    async def _listen_on_tcp(self, api: HttpServer) -> None:
        told = self.settings.listen
        if told.address:
            tls = server_context(TlsFiles(told.tls_cert, told.tls_key, told.tls_ca)) if told.tls_cert else None
            await api.listen(*split(told.address), tls)
            log.info("also listening on %s, %s", told.address, "with TLS" if tls else "for reading only")

    # ---- a new configuration

    def reload(self) -> tuple[list[str], list[str]]:
        """Read the configuration again: what was taken over, what waits for a restart. BadSettings changes nothing."""
        if self._load is None:
            return [], []
        self.settings, taken, waiting = take_over(self.settings, self._load())
        told = self.settings
        self.board.ttl_s = told.socket.ttl_s
        self.desk.book.allow(told.reservations.most, told.reservations.most_ttl_s, told.clients.reservations)
        self.limiter.limits, self.pace.allowance = limits_of(told), allowance_of(told)
        if isinstance(self.source, Live):
            self.source.settings = told.sampling
        log.info(
            "configuration read again: %s%s",
            ", ".join(taken) or "nothing to take over",
            f"; waiting for a restart: {', '.join(waiting)}" if waiting else "",
        )
        return taken, waiting

    def _reload_or_say_why(self) -> None:
        try:
            self.reload()
        except BadSettings as bad:
            log.error("configuration not read again, the old one stays: %s", "; ".join(bad.errors))

    # ---- the other nodes

    def _contribution(self) -> Contribution | None:
        return self._sampling.contribution(self._sizes) if self.board.sequence else None

    def _learned(self, view: GlobalView | None) -> None:
        self._sampling.learn(view, self.settings.federation.weight)

    async def _forget_old_view(self) -> None:
        """A cluster that has not been heard of for long does not decide here any more."""
        known = True  # the model may have been saved with one
        while True:
            await asyncio.sleep(1.0)
            if known and self.federation.view is None:
                self._learned(None)
            known = self.federation.view is not None

    # ---- what must survive

    @property
    def _state_file(self) -> Path:
        return self.settings.state_path / "model.json"

    async def _keep_state(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            await asyncio.to_thread(self._save_state)

    def _save_state(self) -> None:
        """A crash costs at most a minute of learning; a state that cannot be saved costs a log line."""
        if self._replaying:
            return
        try:
            replace_file(self._state_file, self._sampling.encoded_state(state.encode), 0o600, synced=True)
            self._unsaved = ""
        except OSError as error:
            if str(error) != self._unsaved:
                log.warning("what was learned cannot be saved: %s", error)
            self._unsaved = str(error)

    # ---- Pods

    def _on_event(self, event: Event) -> None:
        """A container came or went: the count is right at once, not at the next tick."""
        self._sampling.count(time.monotonic(), self.runtime.count, event.churn)
        if event.topic == "/tasks/start":
            self.desk.pods_started([event.pod, event.pod_name])
        if self.board.sequence and event.count != self.board.status["pods"]:
            self._publish_soon()

    def pod_usage(self) -> Mapping[str, PodUsage]:
        """Counters by Pod, at most `usage_period_s` old: read when somebody looks. From any thread."""
        now_s = time.monotonic()
        if now_s - self._usage[0] >= self.settings.pods.usage_period_s:
            with self.cost.timed("pod usage"):
                self._usage = (now_s, self.runtime.read_usage(now_s))
        return self._usage[1]

    def _counted(self) -> dict[str, bool]:
        """The Pods of this node by the UID that Kubernetes knows; in a replay they ran on another machine."""
        return {} if self._replaying else {pod.uid: pod.counts for pod in self.runtime.pods.values() if pod.uid}

    # ---- out

    def _room(self) -> float | None:
        """Pod-Capacity, as long as it is valid."""
        return self.board.status["pod_capacity"] if self.board.fresh else None

    def _publish_soon(self) -> None:
        """Publish once, however many changes come in this turn of the loop."""
        if not self._publishing and self.board.sequence:
            self._publishing = True
            asyncio.get_running_loop().call_soon(self._publish)

    def _publish(self) -> None:
        started_s = time.perf_counter()
        self._publishing = False
        if not self._replaying:
            self.desk.pods_started(list(self.runtime.pods))  # those that started while nobody listened
            self.runtime.tidy_usage(unused=time.monotonic() - self._usage[0] > UNUSED_S)
        estimate, usage = self._sampling.look()
        status = status_of(self.node, self.resources, estimate, usage.detail if usage else {})
        reserved = self.desk.reserved()
        available = self.desk.book.available(self.desk.now_s, status["pod_capacity"])
        self.board.publish(
            {
                **status,
                "reserved": reserved,
                "available": available,
                "absent": self.absent,
                "runtime": self.runtime.condition,
                "federation": self._federation_body(),
                "sampling": self.sampling_body(),
                **({"kubernetes": self.kube.condition} if self.kube else {}),
            }
        )
        if self.board.sequence == 1:
            self._notifier.ready()
        self._notifier.alive(f"Pod-Capacity {status['pod_capacity']} ({status['mode']})")
        self._write_status_file()
        if self._say is not None:
            self._say(human_line(self.board.status))
        self.cost.stage("publish").record(time.perf_counter() - started_s)

    def sampling_body(self) -> dict[str, Any]:
        period_s = self.source.period_s if isinstance(self.source, Live) else None
        return {"period_s": period_s, "slowed": self.pace.why or None}

    def _federation_body(self) -> dict[str, Any]:
        age_s = self.federation.age_s
        return {
            "condition": self.federation.condition,
            "peers": self.federation.peers,
            "age_s": None if age_s is None else round(age_s, 1),
        }

    def _write_status_file(self) -> None:
        """In a worker thread: a slow disk delays nobody. While one write is under way the next is skipped."""
        if self.settings.socket.status_file and (self._writing is None or self._writing.done()):
            path = Path(self.settings.socket.status_file)
            loop = asyncio.get_running_loop()
            self._writing = loop.run_in_executor(None, replace_file, path, self.board.encoded() + b"\n")
            self._writing.add_done_callback(self._written)

    @staticmethod
    def _written(writing: asyncio.Future[None]) -> None:
        if not writing.cancelled() and (error := writing.exception()) is not None:
            log.warning("status file: %s", error)
