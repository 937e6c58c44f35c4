"""`carico burst` as a daemon: clients, watches, mover, planner, provisioners, Lease and metrics, put together."""

import asyncio
import logging
import os
import shutil
import signal
import socket
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from carico_agent.burst.catalogue import BadPrices, Prices, parse_prices
from carico_agent.burst.cluster import ClusterView
from carico_agent.burst.events import JobEvents
from carico_agent.burst.families import families
from carico_agent.burst.feeds import follow, target_watches, watches
from carico_agent.burst.inject import DataSteps
from carico_agent.burst.job_logs import LogKeeper
from carico_agent.burst.models import Models, no_registry
from carico_agent.burst.mover import Mover
from carico_agent.burst.multikueue import Dispatcher
from carico_agent.burst.overflow import NodeRoom
from carico_agent.burst.planner import BurstPolicy
from carico_agent.burst.protocol import Suspends
from carico_agent.burst.provisioner import ClusterOffer, Provisioner
from carico_agent.burst.registry import Registry, open_registry
from carico_agent.burst.report import status
from carico_agent.burst.seal import Seal
from carico_agent.burst.seal_secret import load_seal, read_seal
from carico_agent.burst.service import BurstService, rounds
from carico_agent.burst.site import Site
from carico_agent.burst.steps import Route
from carico_agent.burst.target import NOWHERE, Target, identity, probe, suspends
from carico_agent.lib.kube.access import Access, access_to, from_kubeconfig_of_service, of_user
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import BadAccess
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.leader import LeaderLease
from carico_agent.lib.kube.watch import ResourceWatch
from carico_agent.lib.net import metrics
from carico_agent.lib.net.address import is_loopback, split_listen
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.net.http import ApiError, Handler, HttpServer, answer, answer_metrics
from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.supervise.tasks import Supervisor
from carico_agent.settings import (
    BadSettings,
    BurstRegistrySettings,
    BurstSettings,
    BurstTargetSettings,
    Settings,
    build,
)

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 3.0
READ_AGAIN = Backoff(first_s=0.05, factor=1.0, max_s=0.05)
"""A kubelet that gives no log says nothing about the others."""


def home_access(settings: BurstSettings, environ: Mapping[str, str] = os.environ) -> Access:
    """The kubeconfig of the settings; else in a Pod its own account; else what kubectl would take."""
    if settings.kubeconfig or environ.get("KUBERNETES_SERVICE_HOST"):
        return access_to(settings.kubeconfig, settings.context, environ)
    return of_user("", settings.context, environ)


def target_settings(settings: BurstSettings) -> dict[str, BurstTargetSettings]:
    """Every [burst.targets.NAME], checked; raises BadSettings with all errors."""
    made: dict[str, BurstTargetSettings] = {}
    errors: list[str] = []
    for name, table in settings.targets.items():
        path = f"burst.targets.{name}"
        try:
            made[name] = build(BurstTargetSettings, table, path)
        except BadSettings as bad:
            errors += bad.errors
            continue
        if not made[name].kubeconfig and not made[name].provisioner:
            errors.append(f"{path}.kubeconfig: is missing; only a target with a provisioner can do without")
    if errors:
        raise BadSettings(errors)
    return made


def registry_settings(settings: BurstSettings) -> BurstRegistrySettings:
    """[burst.registry], checked; raises BadSettings."""
    made: BurstRegistrySettings = build(BurstRegistrySettings, settings.registry, "burst.registry")
    if made.url:
        try:
            open_registry(made.url, "", made.endpoint, made.region)
        except ValueError as error:
            raise BadSettings([f"burst.registry.url: {error}"]) from error
    return made


def models_of(settings: BurstSettings) -> Models:
    """Where the data of Jobs lies."""
    made = registry_settings(settings)

    def registry(namespace: str) -> Registry:
        return open_registry(made.url, namespace, made.endpoint, made.region)

    return Models(settings.models, registry if made.url else no_registry, made.region)


def data_steps(settings: BurstSettings) -> DataSteps | None:
    made = registry_settings(settings)
    if not made.url:
        return None
    return DataSteps(made.url, made.endpoint, made.region, made.secret, made.image, made.node_cache)


def problems(settings: BurstSettings) -> list[str]:
    """For `carico check-config`: what a service of these settings would stumble over here."""
    try:
        targets = target_settings(settings)
        registry_settings(settings)
    except BadSettings as bad:
        return bad.errors
    found = []
    try:
        prices = read_prices(settings.prices)
    except BadPrices as error:
        found.append(f"burst.prices: {error}")
        prices = Prices()
    for name, one in targets.items():
        path = f"burst.targets.{name}"
        found += _target_problems(path, one)
        for machine in (one.machines or (one.machine,)) if settings.prices else ():
            if prices.machine(one.region, machine) is None:
                key = "machines" if one.machines else "machine"
                found.append(
                    f"{path}.{key}: burst.prices has no {machine or '(empty)'} in region {one.region or '(none)'}"
                )
    if targets and not settings.prices:
        found.append("burst.prices: is missing; a target without a price is not used")
    return found


def _target_problems(path: str, one: BurstTargetSettings) -> list[str]:
    found = []
    if one.kubeconfig:
        try:
            from_kubeconfig_of_service(one.kubeconfig, one.context)
        except BadAccess as error:
            found.append(f"{path}.kubeconfig: {error}")
    if one.provisioner and shutil.which(one.provisioner[0]) is None:
        found.append(f"{path}.provisioner: there is no program {one.provisioner[0]}")
    return found


def read_prices(path: str) -> Prices:
    if not path:
        return Prices()
    try:
        return parse_prices(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, BadPrices) as error:
        raise BadPrices(f"{path}: {error}") from error


def nodes_of(prices: Prices, target: BurstTargetSettings, otherwise: NodeRoom) -> dict[str, tuple[NodeRoom, float]]:
    """Machine → a new node of it and its price, for every machine that the target may have and that has a price."""
    made = {}
    for name in target.machines or (target.machine,):
        machine = prices.machine(target.region, name)
        paid_per_h = machine.paid_per_h(target.spot) if machine is not None else None
        if machine is not None and paid_per_h is not None:
            made[name] = machine.node(name, target.region, otherwise), paid_per_h
    return made


@dataclass
class Clients:
    """All clients, closed together."""

    home: KubeClient
    targets: dict[str, tuple[KubeClient, KubeClient, KubeClient]]
    """To move, to probe, to read logs."""

    async def close(self) -> None:
        for client in [self.home, *(client for three in self.targets.values() for client in three)]:
            await client.close()


def clients_of(settings: BurstSettings, targets: dict[str, BurstTargetSettings]) -> Clients:
    """Raises BadAccess for a kubeconfig that cannot be used: an error at start, not an hour later."""

    def client(access: Access) -> KubeClient:
        # a move has 12 requests: 90 Jobs in 15 s are 72 per second; beyond that, API priority and fairness decides
        return KubeClient(access, TokenBucket(per_s=200.0, burst=400))

    def three(one: BurstTargetSettings) -> tuple[KubeClient, KubeClient, KubeClient]:
        access = from_kubeconfig_of_service(one.kubeconfig, one.context) if one.kubeconfig else NOWHERE
        reader = KubeClient(access, TokenBucket(per_s=50.0, burst=100), retry_delays=READ_AGAIN)
        return client(access), KubeClient(access, timeout_s=PROBE_TIMEOUT_S), reader

    return Clients(client(home_access(settings)), {name: three(one) for name, one in targets.items()})


class BurstDaemon:
    """`run` until SIGTERM or SIGINT; `start` and `stop` for one look (`plan`, `status`)."""

    def __init__(self, settings: Settings) -> None:
        self.settings = own = settings.burst
        host, _ = split_listen(own.listen)
        if not is_loopback(host):
            raise ValueError(f"burst.listen: {own.listen} is not loopback; put a proxy with TLS before it")
        self._targets = target_settings(own)
        self.prices = read_prices(own.prices)
        self.clients = clients_of(own, self._targets)
        self.events, self.models = JobEvents(), models_of(own)
        self.supervisor = Supervisor()
        self.lease = LeaderLease(
            self.clients.home, own.lease_namespace, "carico-burst", f"{socket.gethostname()}-{os.getpid()}", own.lease_s
        )
        self.service: BurstService | None = None
        self.dispatcher: Dispatcher | None = None
        self._stopping, self._cost = asyncio.Event(), OwnCost()

    # ---- life

    async def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        server = HttpServer(self.routes())
        await server.listen(*split_listen(self.settings.listen))
        self.supervisor.start("lease", self.lease.run)
        self.supervisor.start("service", self._serve)
        log.info("carico burst on %s, home %s", self.settings.listen, self.clients.home.access.server)
        try:
            await self._stopping.wait()
        finally:
            await server.stop()
            await self.stop()

    async def stop(self) -> None:
        await self.supervisor.stop()
        await self.clients.close()

    async def _serve(self) -> None:
        await self.start(acts=True)
        await asyncio.Event().wait()

    async def start(self, acts: bool) -> BurstService:
        """Learn who home is, then watch and work. Without `acts` nothing is written anywhere."""
        home = self.clients.home
        home_id = await identity(home)
        by_suspend = suspends(await home.get("/version"))
        namespace = self.settings.lease_namespace
        seal = await load_seal(home, namespace) if acts else await read_seal(home, namespace)
        mover = self._mover(home_id, by_suspend, seal or Seal.new())
        service = self.service = self._service(mover)
        for watch in watches(mover, self.settings.selector, self.settings.namespaces):
            self._start(f"watch {id(watch)}", watch.run)
        for watch_home in service.home.watches:
            self._start(f"watch {id(watch_home)}", watch_home.run)
        for name, target in mover.targets.items():
            self._start(f"probe {name}", partial(probe, target))
            all_watches: list[ResourceWatch[Any]] = [*service.sites[name].view.watches, *target_watches(mover, target)]
            for watch_any in all_watches:
                self._start(f"watch {name} {id(watch_any)}", partial(follow, watch_any, target.client))
        if acts:
            self._start_acting(service, mover)
        return service

    def _start_acting(self, service: BurstService, mover: Mover) -> None:
        self._start("events", lambda: self.events.run(self.clients.home))
        if self.settings.engine == "multikueue":
            self.dispatcher = Dispatcher(self.clients.home, service, self.lease, self.settings.period_s)
            self._start("multikueue", self.dispatcher.run)
            return
        self._start("mover", lambda: self._while_leading(mover.run))
        self._start("rounds", lambda: rounds(service, self._leads, self.settings.period_s, self.models))

    def _leads(self) -> bool:
        return self.lease.leads

    async def _while_leading(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while this process leads; it is cancelled when it does not any more."""
        while True:
            while not self.lease.leads:
                await asyncio.sleep(0.2)
            task = asyncio.ensure_future(work())
            try:
                while self.lease.leads and not task.done():
                    await asyncio.sleep(0.5)
                if task.done():
                    await task
            finally:
                task.cancel()

    def _start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self.supervisor.start(name, work)

    # ---- parts

    def _mover(self, home_id: str, by_suspend: bool, seal: Seal) -> Mover:
        targets = {}
        for name, one in self._targets.items():
            client, prober, reader = self.clients.targets[name]
            route = Route(
                home_id,
                name,
                Suspends(home=by_suspend),
                dict(one.namespaces),
                seal=seal,
                homes=self.settings.namespaces,
                host_paths=one.host_paths,
                steps=data_steps(self.settings),
                copy=one.copy,
            )
            targets[name] = Target(route, client, prober, reader, health=Health(f"target {name}"))
        logs = LogKeeper(self.clients.home) if self.settings.keep_logs else None
        return Mover(self.clients.home, targets, self.events, seal, logs, self.models)

    def _service(self, mover: Mover) -> BurstService:
        own = self.settings
        policy = BurstPolicy(own.policy, own.unschedulable_s, own.value_per_h, self.prices)
        home = ClusterView(self.clients.home, mover.home_health)
        sites = {name: self._site(mover.targets[name], one) for name, one in self._targets.items()}
        return BurstService(mover, home, sites, policy, own.idle_delete_s, self.models.of)

    def _site(self, target: Target, one: BurstTargetSettings) -> Site:
        own = self.settings
        otherwise = NodeRoom("new", one.node_cpu, one.node_memory_gb * 1e9, one.node_pods)
        machines = nodes_of(self.prices, one, otherwise)
        for name in {*one.machines, *([] if one.machines else [one.machine])} - set(machines):
            log.warning("%s: burst.prices has no %s in %s: it is not used", target.name, name, one.region)
        known = self.prices.machine(one.region, one.machine)
        price = known.paid_per_h(one.spot) if known else min((paid for _, paid in machines.values()), default=None)
        provisioner = None
        if one.provisioner:
            rows = {name: asdict(self.prices.machines[one.region][name]) for name in machines}
            offer = ClusterOffer(one.region, one.spot, rows, on_demand=not one.kubeconfig)
            provisioner = Provisioner(
                self.clients.home, own.lease_namespace, target.name, one.provisioner, one.deadline_s, offer
            )
        return Site(
            target,
            ClusterView(target.client, target.health),
            one.region,
            price,
            one.image_s,
            one.data_s_per_gb,
            one.autoscales_s or None,
            provisioner,
            next((node for node, _ in machines.values()), otherwise),
            dict(machines.items()) if provisioner is not None else {},
            not one.kubeconfig,
            one.boot_s,
            one.max_nodes,
            one.min_nodes,
        )

    # ---- HTTP

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {
            "/healthz": {"GET": self._healthz},
            "/readyz": {"GET": self._readyz},
            "/metrics": {"GET": self._metrics},
            "/v1/burst": {"GET": self._status},
        }

    async def _healthz(self, request: web.BaseRequest) -> web.StreamResponse:
        return answer({"ok": True, "leads": self.lease.leads, "leader": self.lease.holder})

    async def _readyz(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.service is None or not self.service.home.synced:
            raise ApiError(503, "the home cluster is not known yet")
        return answer({"ok": True})

    async def _status(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.service is None:
            raise ApiError(503, "the home cluster is not known yet")
        return answer({**status(self.service), "leads": self.lease.leads, "leader": self.lease.holder})

    def families(self) -> list[metrics.Family]:
        return families(self.service, self.lease, self.clients.home, self._cost, self.events.dropped)

    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        return answer_metrics(self.families())
