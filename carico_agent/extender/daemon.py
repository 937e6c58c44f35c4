"""The extender as a server: HTTP, metrics, watches, put together and kept running."""

import asyncio
import gc
import hmac
import logging
import os
import signal
import ssl
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any
from weakref import WeakSet

from aiohttp import web

from carico_agent.extender import overview, policies
from carico_agent.extender.cluster import Cluster
from carico_agent.extender.cluster_page import open_cluster_page
from carico_agent.extender.expired import ExpiredNodes
from carico_agent.extender.explain import explained
from carico_agent.extender.extender import Extender
from carico_agent.extender.extender_config import ExtenderConfig
from carico_agent.extender.full_nodes import FullNodes, TaintTimes
from carico_agent.extender.kueue.check import KueueCheck
from carico_agent.extender.leader_label import label_of
from carico_agent.extender.node_metrics import node_families
from carico_agent.extender.placement.placement import Placement
from carico_agent.extender.train_jobs import TrainJobs
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kubernetes import access_of
from carico_agent.lib.net import metrics
from carico_agent.lib.net.address import is_loopback, split_listen
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.net.http import ApiError, Handler, HttpServer, answer, answer_metrics, read_json, request_id
from carico_agent.lib.net.limits import Limits, RateLimiter
from carico_agent.lib.net.local_peers import peer_uid
from carico_agent.lib.net.times import boottime_s
from carico_agent.lib.net.tls import TlsFiles, server_context
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.supervise.slice import ask_for_short_slices
from carico_agent.lib.supervise.tasks import Supervisor
from carico_agent.settings import ExtenderSettings, Settings

log = logging.getLogger(__name__)

BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
READ_BYTES = 1024 * 1024
MAX_BODY_BYTES = 256 * 1024 * 1024
"""With nodeCacheCapable a request is some 100 kB; without, whole Node objects travel."""
MAX_REVIEW_BYTES = 64 * 1024
"""The review of a binding has 2 kB; anybody may send one."""
SCHEDULER_LIMITS = Limits(connections=256, requests_per_s=0)
"""What one address may hold open towards the extender, handshakes included; kube-scheduler keeps a few."""
WEBHOOK_LIMITS = Limits(512, 1000.0, handshakes_per_s=250.0, all_handshakes_per_s=300.0, max_connections=1024)
"""What one address may ask of the admission webhook. An API server opens a connection for every binding that waits,
which may be hundreds, and keeps 25; kube-scheduler binds some 300 Pods a second at most. A refused connection is a
binding that is not asked about (failurePolicy Ignore), so the limit is above that. All connections together take 45 MB,
all handshakes a third of a core."""
WHY_PER_S, WHY_BURST = 5.0, 20
"""Answers to "why" for all who ask: each looks at all nodes, some milliseconds for 5,000."""
RELEASE_S = 2.0
"""For giving up the leadership on the way out [s]."""
MIN_TOKEN_CHARS = 16
BODY_S = 5.0
"""A body must be here within this [s]."""

Verb = Callable[[dict[str, Any]], Awaitable[Any]]


class Latency:
    """A histogram of one verb's answers; kube-scheduler exports none of an extender's."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def record(self, took_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s


class ExtenderFacts:
    """What the cluster's page shows of an extender's cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def about(self) -> dict[str, Any]:
        return {"source": "extender", "time_s": time.time(), "condition": self._cluster.health.condition}

    def nodes(self) -> dict[str, Any]:
        if not self._cluster.synced:
            raise ApiError(503, f"nodes and Pods are not known yet: {self._cluster.health.condition}")
        return overview.nodes_body(self._cluster.table.all(), boottime_s())

    def workloads(self) -> Iterator[dict[str, Any] | None]:
        return overview.workloads(self._cluster, boottime_s())

    def where(self, workload: str) -> dict[str, Any]:
        return overview.where(self._cluster, workload, boottime_s())


class ExtenderServer:
    """`run` serves until SIGTERM or SIGINT. Raises BadSettings for an unknown policy or its bad settings."""

    def __init__(self, settings: Settings) -> None:
        own = settings.extender
        policy = policies.load(own.policy, own.policies)
        self._settings, self._page, self._listen = own, settings.cluster_page, split_listen(own.listen)
        self._admission_listen = split_listen(own.admission_listen) if own.admission_listen else None
        # a binding per Pod; the stock kube-scheduler allows itself 50 per second, bursts of 100
        self.client = KubeClient(access_of(settings.kubernetes), TokenBucket(per_s=1000.0, burst=1000))
        kube = settings.kubernetes
        config = ExtenderConfig(
            kube.lease_namespace, kube.resource, bound_within_s=own.bound_within_s, max_nodes=own.max_nodes
        )
        placement = Placement(self.client, config)
        self.cluster = Cluster(self.client, kube.resource, kube.lease_namespace, placement)
        self.extender = Extender(self.client, self.cluster, policy, config, placement)
        self.expired = ExpiredNodes(self.client, self.cluster, kube.resource, kube.lease_namespace, self._may_place)
        self._lowers = bool(kube.resource and kube.lease_namespace)
        self._train_jobs = TrainJobs(self.client, self.cluster.take_train_work) if policy.reads_train_jobs else None
        self._kueue = KueueCheck(self.client, self.cluster, kube.resource, self._may_place) if own.kueue else None
        taint = TaintTimes(own.taint_after_s, own.taint_after_s / 2)
        self._full = FullNodes(self.client, self.cluster, self._may_place, taint) if own.taint_full_nodes else None
        self.supervisor = Supervisor()
        self.latency: dict[str, Latency] = {}
        self._why_budget = TokenBucket(per_s=WHY_PER_S, burst=WHY_BURST)
        self._stopping = asyncio.Event()
        self._cost = OwnCost()

    async def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        ask_for_short_slices()
        api = HttpServer(self.routes(), RateLimiter(SCHEDULER_LIMITS), read_bytes=READ_BYTES)
        await api.listen(*self._listen, tls_of(self._settings))
        admit = self._timed("admit", self._admit, MAX_REVIEW_BYTES)
        reads = {"/readyz": {"GET": self._readyz}, "/why/{id}": {"GET": self._why}}
        webhook = HttpServer({**admission_routes(self._settings, admit), **reads}, RateLimiter(WEBHOOK_LIMITS))
        if self._admission_listen is not None:
            await webhook.listen(*self._admission_listen, webhook_tls(self._settings))
        page = await open_cluster_page(self._page, ExtenderFacts(self.cluster))
        self.supervisor.start("watches", self.cluster.run)
        self.supervisor.start("expiry", self.extender.expire_loop)
        self.supervisor.start("memory", self._freeze)
        self.supervisor.start("waking", self.extender.wake.run)
        if (replicas := self.extender.replicas) is not None:
            for name, task in self.extender.replica_tasks().items():
                self.supervisor.start(name, task)
            if (label := label_of(self.client, lambda: replicas.leader.leads)) is not None:
                self.supervisor.start("label", label.run)
        if self._lowers:
            self.supervisor.start("silent nodes", self.expired.run)
        if self._train_jobs is not None:
            self.supervisor.start("TrainJobs", self._train_jobs.run)
        if self._kueue is not None:
            self.supervisor.start("Kueue", self._kueue.run)
        if self._full is not None:
            self.supervisor.start("taints", self._full.run)
        log.info("carico extender on %s, API server %s", self._settings.listen, self.client.access.server)
        try:
            await self._stopping.wait()
        finally:
            await api.stop()
            await webhook.stop()
            if page is not None:
                await page.stop()
            if self._full is not None:
                with suppress(KubeError, TimeoutError):  # then the next leader does; it leads only while all runs
                    async with asyncio.timeout(RELEASE_S):
                        await self._full.clear()
            await self.supervisor.stop()
            if replicas is not None:
                with suppress(KubeError, TimeoutError):  # then the next leader waits until our Lease has expired
                    async with asyncio.timeout(RELEASE_S):
                        await replicas.leader.release()
            await self.client.close()

    def _may_place(self) -> bool:
        return self.extender.replicas is not None and self.extender.replicas.may_place

    async def _freeze(self) -> None:
        """The whole cluster lives long: once it is known, the garbage collector need not walk through it again."""
        while not self.cluster.synced:
            await asyncio.sleep(0.1)
        gc.collect()
        gc.freeze()

    def routes(self) -> dict[str, dict[str, Handler]]:
        async def prioritize(arguments: dict[str, Any]) -> Any:
            return self.extender.candidates.prioritize(arguments)

        return {
            "/filter": {"POST": self._timed("filter", self.extender.second_look.filter)},
            "/prioritize": {"POST": self._timed("prioritize", prioritize)},
            "/bind": {"POST": self._for_schedulers(self._timed("bind", self.extender.binder.bind))},
            "/healthz": {"GET": self._healthz},
            "/readyz": {"GET": self._readyz},
            "/why/{id}": {"GET": self._why},
            "/metrics": {"GET": self._metrics},
            "/metrics/nodes": {"GET": self._node_metrics},
        }

    async def _admit(self, asked: dict[str, Any]) -> Any:
        try:
            return await self.extender.webhook.review(asked)
        except ValueError as error:
            raise ApiError(400, str(error)) from error
        except KubeError as error:  # not known: the webhook's failurePolicy then decides
            raise ApiError(503, str(error)) from error

    def _for_schedulers(self, handler: Handler) -> Handler:
        """On loopback without TLS: for root, our own user and those that are configured. Beyond it, the user who
        configured `allow_plaintext` has decided; with TLS a certificate says who it is."""
        if self._settings.tls_cert or not is_loopback(split_listen(self._settings.listen)[0]):
            return handler
        allowed = {0, os.geteuid(), *self._settings.bind_users}
        known: WeakSet[asyncio.BaseTransport] = WeakSet()

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            transport = request.transport
            if transport is not None and transport not in known:
                if (uid := peer_uid(transport)) not in allowed:
                    who = "a user who is not known" if uid is None else f"user {uid}"
                    raise ApiError(403, f"{who} may not bind Pods (extender.bind_users), or use TLS")
                known.add(transport)
            return await handler(request)

        return handle

    def _timed(self, verb: str, work: Verb, max_bytes: int = MAX_BODY_BYTES) -> Handler:
        latency = self.latency[verb] = Latency()

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            started_s = time.perf_counter()
            result = await work(await _body(request, max_bytes))
            ready = isinstance(result, bytes)
            response = web.Response(body=result, content_type="application/json") if ready else answer(result)
            latency.record(time.perf_counter() - started_s)
            return response

        return handle

    async def _healthz(self, request: web.BaseRequest) -> web.StreamResponse:
        condition, warnings = self.cluster.health.condition, self.extender.warnings.texts()
        return answer({"ok": True, "condition": condition, **({"warnings": warnings} if warnings else {})})

    async def _readyz(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self.cluster.synced:
            raise ApiError(503, f"nodes and Pods are not known yet: {self.cluster.health.condition}")
        return answer({"ok": True, "nodes": len(self.cluster.nodes), "pods": len(self.cluster.ledger)})

    async def _why(self, request: web.BaseRequest) -> web.StreamResponse:
        """Which nodes would refuse the Pod with this UID now, and why. Also on the webhook's port, which the API server
        can forward to: it has no client certificate for the other one. Who knows a Pod's UID may read the Pod."""
        if not self.cluster.synced:
            raise ApiError(503, f"nodes and Pods are not known yet: {self.cluster.health.condition}")
        if wait_s := self._why_budget.take(boottime_s()):
            raise ApiError(429, "too many questions", {"Retry-After": str(ceil(wait_s))})
        if (verdicts := self.extender.candidates.why(request_id(request))) is None:
            raise ApiError(404, "kube-scheduler has not asked this extender about such a Pod")
        return answer({"policy": self._settings.policy, **explained(verdicts)})

    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        return answer_metrics(self._families())

    async def _node_metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self.cluster.synced:
            raise ApiError(503, f"nodes and Pods are not known yet: {self.cluster.health.condition}")
        return answer_metrics(node_families(self.cluster.table.all(), boottime_s()))

    def _families(self) -> list[metrics.Family]:
        def gauge(name: str, help: str, value: float) -> metrics.Family:
            return metrics.Family(name, "gauge", help).add(value)

        def counter(name: str, help: str, value: float) -> metrics.Family:
            return metrics.Family(name, "counter", help).add(value)

        cluster, now_s = self.cluster, boottime_s()
        nodes = cluster.table.all()
        open_ = int(((now_s - nodes.published_s <= nodes.ttl_s) & (nodes.available() >= 1)).sum())

        def latency(verb: str, of: Latency) -> metrics.Family:
            name, help = f"carico_extender_{verb}_seconds", f"Time to answer {verb}."
            return metrics.histogram(name, help, BOUNDS_S, of.counts, of.sum_s)

        return [
            *(latency(verb, of) for verb, of in self.latency.items()),
            gauge("carico_extender_nodes", "Nodes known.", len(cluster.nodes)),
            gauge("carico_extender_open_nodes", "Nodes with a valid number and room.", open_),
            gauge("carico_extender_places", "Places held by Pods, bound or assumed.", len(cluster.ledger)),
            gauge("carico_extender_well", "1 while the API server answers.", float(cluster.health.well)),
            counter("carico_extender_refused_binds_total", "Bindings refused.", self.extender.binder.refused),
            counter(
                "carico_extender_refused_admissions_total",
                "Bindings by others that were refused.",
                self.extender.webhook.refused,
            ),
            gauge("carico_extender_leads", "1 while this extender places Pods for all.", float(self._may_place())),
            counter(
                "carico_extender_acknowledged_total",
                "Lower numbers of agents that this extender has acknowledged.",
                0 if self.extender.replicas is None else self.extender.replicas.placed.acknowledged,
            ),
            counter(
                "carico_extender_lowered_total",
                "Times the resource of a node with a silent agent was lowered.",
                self.expired.lowered,
            ),
            counter(
                "carico_extender_overruled_binds_total",
                "Pods bound by kube-scheduler where this extender had refused them (`ignorable: true`).",
                self.extender.warnings.overruled.count,
            ),
            counter(
                "carico_extender_asked_without_resource_total",
                "Times filter was asked about a Pod that does not ask for the extended resource.",
                self.extender.warnings.without_resource.count,
            ),
            counter(
                "carico_extender_wakes_total",
                "Times kube-scheduler was told by an annotation that a waiting Pod has room.",
                self.extender.wake.wakes,
            ),
            counter(
                "carico_extender_second_look_seconds_total",
                "Time that answers to filter waited for news.",
                self.extender.second_look.waited_s,
            ),
            counter("carico_extender_requests_total", "Requests sent to the API server.", self.client.requests),
            *metrics.process(self._cost.cpu_s(), self._cost.resident_bytes(), "the extender"),
        ]


async def _body(request: web.BaseRequest, max_bytes: int) -> dict[str, Any]:
    try:
        async with asyncio.timeout(BODY_S):
            return await read_json(request, max_bytes)
    except TimeoutError as error:
        raise ApiError(408, f"the body was not here within {BODY_S:g} s") from error


def tls_of(settings: ExtenderSettings) -> ssl.SSLContext | None:
    """How to serve kube-scheduler, and only it; None for plain http, which must be asked for beyond this machine."""
    if settings.tls_cert:
        return server_context(TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_ca))
    if not is_loopback(split_listen(settings.listen)[0]) and not settings.allow_plaintext:
        raise ValueError(
            f"{settings.listen} without TLS: anyone who can connect may bind Pods; "
            "set extender.tls_* or allow_plaintext"
        )
    return None


def admission_routes(settings: ExtenderSettings, admit: Handler) -> dict[str, dict[str, Handler]]:
    """Where reviews are answered. ValueError where any client could ask although the settings do not say so.

    Why a secret in the path: API servers have no certificate for admission webhooks unless configured, which a managed
    one cannot be. The path stands in the webhook's configuration, which only administrators may read.
    """
    if not settings.admission_token_file:
        if settings.admission_listen and not (settings.admission_client_ca or settings.admission_anyone):
            raise ValueError(
                "extender.admission_listen: any client could ask to hold places; set admission_token_file, "
                "admission_client_ca, or admission_anyone = true where a NetworkPolicy keeps others out"
            )
        return {"/admit": {"POST": admit}}
    token = Path(settings.admission_token_file).read_text().strip()
    if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isalnum():
        raise ValueError(f"{settings.admission_token_file}: at least {MIN_TOKEN_CHARS} letters or digits are needed")

    async def admit_api_server(request: web.BaseRequest) -> web.StreamResponse:
        if not hmac.compare_digest(request_id(request).encode(errors="replace"), token.encode()):
            raise ApiError(403, "for the API server only: the path does not end with its secret")
        return await admit(request)

    return {"/admit/{id}": {"POST": admit_api_server}}


def webhook_tls(settings: ExtenderSettings) -> ssl.SSLContext:
    """Who we are; with admission_client_ca clients must show a certificate, too."""
    if not settings.tls_cert or not settings.tls_key:
        raise ValueError("extender.admission_listen needs tls_cert and tls_key: API servers talk to https only")
    context = server_context(TlsFiles(settings.tls_cert, settings.tls_key, settings.admission_client_ca))
    context.num_tickets = 0  # an API server resumes no session, and more than 25 connections it does not keep
    return context
