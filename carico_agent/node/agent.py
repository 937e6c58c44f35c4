"""The agent: puts the parts of one node together, and runs its loop.

The loop (`Agent._loop`) is the way of every sample. Once a second it takes the samples out of the queue, steps the
model, makes one immutable Status and publishes it. It also runs at once when Pods or reservations change. While no
publisher and no client follows, it steps every five seconds and makes no Status (publish/latest.py says why). All parts
only read the latest Status, or put something into the loop's inbox (inbox.py). The sampling side (source.py) reads the
kernel and owns the model; the publishers (publish/publishers) carry the Status on, and none is known here by name.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from math import inf

from carico_agent.lib.kube.declared import DeclaredPod
from carico_agent.lib.net.http import HttpServer
from carico_agent.lib.net.limits import Limits, RateLimiter
from carico_agent.lib.net.metrics import Family
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.supervise.memory import give_back
from carico_agent.lib.supervise.tasks import Supervisor
from carico_agent.lib.supervise.workers import Workers
from carico_agent.node import outlook
from carico_agent.node.container_history import ContainerHistories
from carico_agent.node.counters import PodCounters
from carico_agent.node.history import StatusHistory
from carico_agent.node.inbox import Inbox, News, Notice
from carico_agent.node.learning import ClusterLearning
from carico_agent.node.own_cost import self_metrics
from carico_agent.node.plugins import PluginApi
from carico_agent.node.pods.events import Event
from carico_agent.node.pods.watch import discover
from carico_agent.node.progress import ProgressApi
from carico_agent.node.publish.latest import CALM_S, IDLE_S, OLD_S, LatestStatus
from carico_agent.node.publish.publisher import KnowsPods, Measured, Publisher, PublisherContext, open_all
from carico_agent.node.publish.status import as_json, known, moved
from carico_agent.node.reload import Configuration
from carico_agent.node.reservations import Reservations
from carico_agent.node.reserve import ReservationApi
from carico_agent.node.routes import PodRoutes, SelfRoutes
from carico_agent.node.source import Source, SourceOptions, memory_bytes, open_live, open_replay
from carico_agent.node.state import Kept, StateFiles, encode
from carico_agent.node.status_maker import StatusMaker
from carico_agent.node.workloads import WorkloadRoutes
from carico_agent.settings import Settings

log = logging.getLogger(__name__)

STARTED_S = 60.0
"""After this long all parts have started, containers were listed, and their files are open."""
MAX_DISK_CALLS = 4
"""Threads that may wait for a disk at a time: reservations, status file, state, configuration."""


def limits_of(settings: Settings) -> Limits:
    return Limits(settings.clients.connections, settings.clients.requests_per_s)


class Agent:
    """One node's agent. `run` returns after SIGTERM or SIGINT, or when a replay has ended."""

    def __init__(
        self,
        settings: Settings,
        options: SourceOptions | None = None,
        print_line: Callable[[str], None] | None = None,
        load: Callable[[], Settings] | None = None,
    ) -> None:
        """`print_line` gets a line per update; `load` reads the configuration again."""
        self._disk = Workers("the disk", MAX_DISK_CALLS)
        self._configuration = Configuration(settings, load, self._disk)
        self._node = settings.node.name or os.environ.get("NODE_NAME") or socket.gethostname()
        self._print_line = print_line
        self._publishers: list[Publisher] = []
        self._stopping = asyncio.Event()
        self._cost, self._supervisor = OwnCost(), Supervisor()
        self._inbox, self._idle_until_s = Inbox(), -inf
        self._latest = LatestStatus(settings.socket.ttl_s, on_follow=partial(self._inbox.put, Notice.FOLLOWED))
        self._runtime = discover(settings)
        self._source = self._open_source(settings, options or SourceOptions())
        self._history = StatusHistory(self._source.resources, self._latest.current)
        self._counters = PodCounters(
            self._runtime, lambda: self._configuration.current().pods.usage_period_s, self._cost
        )
        self._reservations = ReservationApi(
            Reservations(settings.reservations.most, settings.reservations.max_ttl_s),
            settings.state_path / "reservations.json",
            self._disk,
            self._room,
            partial(self._inbox.put, Notice.RESERVED),
            self._fits,
            current=self._latest.current,
        )
        self._reservations.take_settings(settings)
        self._plugins = PluginApi(
            settings, self._runtime, self._counters.read, lambda: as_json(self._latest.status), self._declared
        )
        self._learning = ClusterLearning(self._configuration.current, self._node, self._source, self._latest)
        self._histories = ContainerHistories(
            self._runtime,
            self._node,
            self._source.cores,
            float(memory_bytes()),
            settings.state_path / "containers.json",
            self._source.record_pods,
            self._declared,
        )
        self._progress = ProgressApi(self._configuration.current, self._runtime)
        self._http = HttpServer({}, RateLimiter(limits_of(settings)))
        self._statuses = StatusMaker(
            self._node,
            self._source,
            self._runtime,
            self._reservations,
            self._learning,
            self._progress,
            self._publishers,
            lambda: self._configuration.current().kubernetes.horizon_s,
        )
        self._configuration.on_change(self._take_settings)

    def _open_source(self, settings: Settings, options: SourceOptions) -> Source:
        if options.replay:
            second, ended = (partial(self._inbox.put_from_thread, one) for one in (Notice.SECOND, Notice.ENDED))
            return open_replay(settings, options, self._cost, second, ended)
        return open_live(
            settings,
            self._node,
            self._runtime,
            self._cost,
            settings.state_path / "model.json",
            self._second,
            options.record,
        )

    def _second(self) -> None:
        """The sampling thread has read another second: the loop wakes for it while the status is followed."""
        now_s = time.monotonic()
        if self._latest.is_followed or not self._latest.sequence or now_s >= self._idle_until_s:
            self._idle_until_s = now_s + IDLE_S - 0.5
            self._inbox.put_from_thread(Notice.SECOND)

    async def run(self) -> None:
        self._add_signal_handlers()
        self._add_routes()
        self._publishers += await open_all(self._context())
        folder, model = self._configuration.current().state_path, self._source.feed.model
        kept = [
            Kept(folder / "model.json", partial(encode, model)),
            Kept(folder / outlook.NAME, partial(outlook.encode, model), outlook.SAVE_ROUNDS),
        ]
        state = StateFiles(kept, self._disk)
        live = not self._source.replaying
        if live:
            self._runtime.scan()
        self._supervisor.start("loop", self._loop)
        self._source.producer.start()
        for publisher in self._publishers:
            self._supervisor.start(publisher.name, publisher.run)
        self._learning.start(self._supervisor)
        if live:
            self._runtime.listen(self._inbox.put)
            self._supervisor.start("runtime", self._runtime.run)
            self._supervisor.start("state", state.run)
            if self._configuration.current().pods.history:
                self._supervisor.start("container history", self._histories.run)
            await self._plugins.start()
            if self._plugins.running:  # their threads read a status every second
                self._latest.follow(asyncio.Event())
            await self._progress.start()
        gc.collect()
        gc.freeze()  # what lives from here on is small: collections stay cheap
        asyncio.get_running_loop().call_later(STARTED_S, give_back)
        log.info("carico agent on %s: socket %s", self._node, self._configuration.current().socket_path)
        try:
            await self._stopping.wait()
        finally:
            self._source.stop()
            await self._progress.stop()
            await self._plugins.stop()
            await self._supervisor.stop()
            for publisher in self._publishers:
                await publisher.stop()
            if live:
                await state.save_last()
                await self._histories.save_last()

    def _add_signal_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._configuration.reload_soon)

    def _add_routes(self) -> None:
        own = SelfRoutes(
            self._cost,
            self._source,
            self._runtime,
            self._supervisor.conditions,
            self._publishers,
            self._configuration,
        )
        workloads = WorkloadRoutes(self._latest, self._source.resources, self._source.feed.of_workload)
        pods = PodRoutes(self._runtime, self._counters)
        ahead = outlook.OutlookRoutes(lambda: self._source.feed.model)
        reserved, histories = self._reservations, (self._history, self._histories, ahead)
        for part in (pods, workloads, *histories, own, reserved, self._plugins, self._progress):
            self._http.add(part.routes())

    def _context(self) -> PublisherContext:
        return PublisherContext(
            node=self._node,
            latest=self._latest,
            http=self._http,
            settings=self._configuration.current,
            families=self._families,
            counted=self._counted,
            disk=self._disk,
            print_line=self._print_line,
        )

    def _take_settings(self, settings: Settings) -> None:
        self._latest.expire_after(settings.socket.ttl_s)
        self._http.limiter.allow(limits_of(settings))
        self._reservations.take_settings(settings)
        self._progress.take_settings(settings)
        self._source.take_settings(settings)

    # ---- the way of a sample

    async def _loop(self) -> None:
        """Samples → model → Status → publishers. The sampling thread wakes it once a second, or more rarely while no
        reader follows; container events, reservations and new readers wake it at once."""
        source, latest, cost = self._source, self._latest, self._cost.stage("publish")
        while True:
            news, samples_wait = await self._inbox.get(), bool(source.queue)
            for t, estimate in source.feed.step():
                self._history.record_estimate(estimate, 0.0 if source.replaying else time.monotonic() - t)
            for event in news:
                if isinstance(event, Event):
                    self._take_event(event)
            if Notice.SECOND in news and not source.replaying:
                self._refresh_pods()
            if self._is_due(news, samples_wait):
                started_s = time.perf_counter()
                latest.publish(self._statuses.make(source.feed.estimate()))
                cost.record(time.perf_counter() - started_s)
            if Notice.ENDED in news:
                self._stopping.set()

    def _is_due(self, news: list[News], fed: bool) -> bool:
        """Whether a status is: the first one, and for readers that wait when the sampling thread says so, when the
        number of Pods or the reservations have changed since, and when there are samples (`fed`) newer than an old one.
        """
        latest, feed = self._latest, self._source.feed
        if not self._source.ready:
            return False
        if not latest.sequence:
            return Notice.SECOND in news
        if not latest.is_awaited:
            return False
        if Notice.RESERVED in news or feed.model.pods != latest.status.pods:
            return True
        if Notice.SECOND in news:
            return latest.is_wanted_every_second or latest.age_s > CALM_S or moved(latest.status, feed.estimate())
        return Notice.FOLLOWED in news and fed and latest.age_s > OLD_S

    def _take_event(self, event: Event) -> None:
        """A container came or went: the count is right at once, not at the next sample."""
        self._source.feed.count(time.monotonic(), self._runtime.count, event.churn)
        self._history.mark(event)
        if event.topic == "/tasks/start":
            self._reservations.pods_started([event.pod, event.pod_name])

    def _refresh_pods(self) -> None:
        """Those that started or ended, also without an event."""
        self._reservations.pods_started(self._runtime.pods)
        self._counters.tidy()
        self._progress.refresh()

    # ---- what other parts ask for

    def _counted(self) -> dict[str, bool]:
        """The Pods of this node by the UID that Kubernetes knows; in a replay they ran on another machine."""
        return {} if self._source.replaying else {pod.uid: pod.counts for pod in self._runtime.pods.values() if pod.uid}

    def _declared(self, uid: str) -> DeclaredPod | None:
        """What the API server has about a Pod of this node, where a publisher watches it."""
        found = (part.declared(uid) for part in self._publishers if isinstance(part, KnowsPods))
        return next((pod for pod in found if pod is not None), None)

    def _room(self) -> float | None:
        """Pod-Capacity, as long as it is valid."""
        status = self._latest.valid
        return None if status is None else status.pod_capacity

    def _fits(self, workload: str) -> float | None:
        """How many more Pods of a workload fit, for as long as they stay where that is known."""
        held = self._source.feed.of_workload(workload)
        found = held if held.outlook == "known" else self._source.feed.of_workload(workload, 0.0)
        return known(found.pod_capacity, 3)

    def _families(self) -> Iterator[Family]:
        """Metrics beside the status."""
        producer = self._source.producer
        yield from self_metrics(self._cost, producer.lateness, producer.worked, producer.failures)
        absent = Family("carico_absent", "gauge", "1 for each signal this node does not offer.")
        for name in self._source.absent:
            absent.add(1, signal=name)
        refused = Family("carico_refused_total", "counter", "Beyond a client's limits.")
        for what in ("connections", "requests"):
            refused.add(self._http.limiter.refused[what], what=what)
        dropped = Family("carico_dropped_samples_total", "counter", "Samples lost because the agent was too busy.")
        yield from (absent, refused, dropped.add(self._source.queue.dropped))
        events = Family("carico_container_events_total", "counter", "Container events received.")
        yield events.add(self._runtime.log.total)
        yield from self._progress.families()
        yield from (one for part in self._publishers if isinstance(part, Measured) for one in part.families())
        yield from self._plugins.metrics()
