"""Pods per second through a real kube-scheduler, without and with the extender, and where the CPU time goes.

The rate is that between the first and the last binding by the API server's own clock. Every case runs once per round,
so that a machine that becomes slower meanwhile does so for all; the ratio to the scheduler alone is of one round, and
the median of the rounds is shown. Beside it CPU time per Pod and process: on a machine that others use it says more
than rates do. Needs the control plane of the tests (`make kube`).
"""

import json
import re
import statistics
import tempfile
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from lab.bench.extender_nodes import lease_object, name, node_object
from lab.bench.peer_schedulers import built_peers
from lab.support import TREE
from lab.support.control_plane import Plane
from lab.support.extender_process import ExtenderProcess
from lab.support.kube_admin import HOOKS
from lab.support.waiting import wait_for
from lab.support.webhook import Webhook

Row = tuple[str, ...]
PROCESSES = ("kube-scheduler", "kube-apiserver", "etcd", "extender")
VERBS = ("filter", "prioritize", "bind", "admit")
HEADS = (
    "extender",
    "Pods/s",
    "ratio",
    "each round",
    *(f"{verb} [ms]" for verb in VERBS),
    "review p99 [ms]",
    "requests per Pod",
    *(f"{process} [CPU ms per Pod]" for process in PROCESSES),
    "all [CPU ms per Pod]",
)
STANDBY, RESOURCE, NO_BATCHES, SCORED = "standby", "resource", "no batches", "scored"
"""Beside the verbs: another extender leads; Pods ask for `carico.dev/pods: 1`; the scheduler does not batch Pods that
are alike (OpportunisticBatching, on since 1.35), as it does not with any extender; it scores the resource itself, as
deploy/scheduler/v1.yaml says."""
CASES = {
    "none": (),
    "none, and no batches": (NO_BATCHES,),
    "none, Pods ask for the resource": (RESOURCE,),
    "the same, scored by kube-scheduler": (RESOURCE, SCORED),
    "the same, and the API server asks before each binding": ("admit", RESOURCE, SCORED),
    "the same, a replica that does not lead is asked": ("admit", RESOURCE, STANDBY),
    "filter": ("filter",),
    "filter, prioritize": ("filter", "prioritize"),
    "filter, prioritize, bind": ("filter", "prioritize", "bind"),
}
REVIEWS = "apiserver_admission_webhook_admission_duration_seconds"


@dataclass
class Run:
    """What one run showed."""

    rate: float
    answers_ms: dict[str, float] = field(default_factory=dict)
    """Mean time of an answer of each verb that was asked for."""
    review_p99_ms: float | None = None
    """By the API server."""
    requests: float = 0.0
    """Of the extender, per Pod."""
    cpu_ms: dict[str, float] = field(default_factory=dict)
    """By process, per Pod."""


def throughput(nodes: int = 1000, pods: int = 1000, rounds: int = 3) -> list[Row]:
    peers, names = built_peers(), [name(number) for number in range(nodes)]
    found: dict[str, list[Run]] = {title: [] for title in [*CASES, *peers]}
    with tempfile.TemporaryDirectory() as folder:
        plane = Plane(Path(folder))
        try:
            plane.start()
            plane.apply(TREE / "deploy/base/00-namespace.yaml", TREE / "deploy/base/10-rbac.yaml")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda node: _add_node(plane, node), names))
            for _ in range(rounds):
                for title, verbs in CASES.items():
                    found[title].append(_run(plane, pods, verbs, Path(folder)))
                for title, (program, load) in peers.items():
                    with load(plane, names) as config:
                        found[title].append(_run(plane, pods, (), Path(folder), PeerScheduler(program, config)))
        finally:
            plane.stop()
    alone = [run.rate for run in found["none"]]
    return [_row(title, runs, alone) for title, runs in found.items()]


def _add_node(plane: Plane, node: str) -> None:
    plane.admin.post("/api/v1/nodes", node_object(node, 50))
    plane.admin.post("/apis/coordination.k8s.io/v1/namespaces/carico/leases", lease_object(node, 50))


def _row(title: str, runs: list[Run], alone: list[float]) -> Row:
    ratios = [run.rate / other for run, other in zip(runs, alone, strict=True)]
    return (
        title,
        f"{statistics.median(run.rate for run in runs):.0f}",
        f"{statistics.median(ratios):.2f}",
        " ".join(f"{run.rate:.0f}" for run in runs),
        *(_middle([run.answers_ms[verb] for run in runs if verb in run.answers_ms]) for verb in VERBS),
        _middle([run.review_p99_ms for run in runs if run.review_p99_ms is not None]),
        _middle([run.requests for run in runs if run.requests]),
        *(_middle([run.cpu_ms[process] for run in runs if process in run.cpu_ms]) for process in PROCESSES),
        _middle([sum(run.cpu_ms.values()) for run in runs]),
    )


def _middle(values: list[float]) -> str:
    return f"{statistics.median(values):.1f}" if values else ""


@dataclass(frozen=True)
class PeerScheduler:
    """Another scheduler in place of kube-scheduler."""

    program: Path = Path("kube-scheduler")
    config: dict[str, Any] = field(default_factory=dict)


def _run(plane: Plane, pods: int, verbs: tuple[str, ...], folder: Path, peer: PeerScheduler = PeerScheduler()) -> Run:
    """Pods wait until the scheduler starts."""
    asked: ExtenderProcess | Webhook | None = None
    leader = ExtenderProcess(folder, plane.kubeconfig("extender-token")).ready() if STANDBY in verbs else None
    if leader is not None:
        _wait_to_lead(leader)
    config = peer.config
    if SCORED in verbs:
        config = {"profiles": yaml.safe_load((TREE / "deploy/scheduler/v1.yaml").read_text())["profiles"]}
    if "filter" in verbs:
        asked = ExtenderProcess(folder, plane.kubeconfig("extender-token")).ready()
        config = {"extenders": [_extender(asked.url, verbs)]}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: plane.admin.add_pod(f"bench-{n}", int(RESOURCE in verbs)), range(pods)))
    if "admit" in verbs:
        asked = Webhook(plane, folder)
    if asked is not None and leader is None:
        _wait_to_lead(asked)
    log = AuditLog(plane)
    before = _counters(plane, asked)
    without = ("OpportunisticBatching",) if NO_BATCHES in verbs else ()
    plane.start_scheduler(config, without=without, program=peer.program)
    try:
        wait_for(lambda: log.bindings() >= pods, "all Pods are bound", 900, every_s=0.5)
        after = _counters(plane, asked)
        times_s = sorted(log.times_s)
        run = Run((pods - 1) / (times_s[-1] - times_s[0]))
        if asked is not None:
            run.answers_ms, run.requests = _means(after.metrics), (after.requests - before.requests) / pods
        if "admit" in verbs:
            run.review_p99_ms = _p99_ms(before.reviews, after.reviews)
        run.cpu_ms = {name: 1e3 * (cpu_s - before.cpu_s.get(name, 0.0)) / pods for name, cpu_s in after.cpu_s.items()}
        return run
    finally:
        plane.stop_scheduler()
        for extender in (asked, leader):
            if extender is not None:
                extender.stop()
        plane.admin.delete(HOOKS)
        plane.admin.request("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
        wait_for(lambda: not plane.admin.pods(), "the Pods are gone", 300)


def _wait_to_lead(extender: ExtenderProcess | Webhook) -> None:
    """It waits itself until nothing that the last one placed can be on its way."""
    wait_for(lambda: _rows(extender.metrics())["carico_extender_leads"] == 1, "the extender leads", 60)


def _extender(url: str, verbs: tuple[str, ...]) -> dict[str, Any]:
    return {"urlPrefix": url, "weight": 5, "nodeCacheCapable": True, **{f"{verb}Verb": verb for verb in verbs}}


class AuditLog:
    """The API server's audit log from now on. Every line is read once: reading a whole log again and again takes the
    CPU time that is measured here."""

    def __init__(self, plane: Plane) -> None:
        self._path = plane.folder / "audit.log"
        self._path.touch()  # the server makes it with the first entry
        self._at = self._path.stat().st_size
        self.times_s: list[float] = []
        """When the server received each binding that it made [s since 1970]."""

    def bindings(self) -> int:
        with self._path.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._at += len(new)
        for line in new.splitlines():
            if b'"subresource":"binding"' in line and (entry := json.loads(line))["responseStatus"]["code"] < 300:
                self.times_s.append(datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp())
        return len(self.times_s)


# ---- what the processes say of themselves


@dataclass(frozen=True)
class Counters:
    """All counters at one moment."""

    cpu_s: dict[str, float]
    metrics: str
    """The extender's."""
    requests: float
    reviews: dict[float, float]
    """How many reviews had been answered within so many seconds, by the API server."""


def _counters(plane: Plane, asked: ExtenderProcess | Webhook | None) -> Counters:
    cpu_s, text, requests = plane.cpu_s(), "", 0.0
    if asked is not None:
        text = asked.metrics()
        rows = _rows(text)
        cpu_s["extender"], requests = rows["process_cpu_seconds_total"], rows["carico_extender_requests_total"]
    return Counters(cpu_s, text, requests, _reviews(plane) if isinstance(asked, Webhook) else {})


def _rows(text: str) -> dict[str, float]:
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")}


def _means(text: str) -> dict[str, float]:
    """Mean time of each verb that was asked for [ms], from the extender's own metrics."""
    rows = _rows(text)
    parts = {
        verb: [rows[f"carico_extender_{verb}_seconds_{what}"] for what in ("sum", "count")]
        for verb in VERBS
        if f"carico_extender_{verb}_seconds_sum" in rows
    }
    return {verb: 1e3 * total_s / count for verb, (total_s, count) in parts.items() if count}


def _reviews(plane: Plane) -> dict[float, float]:
    counts: dict[float, float] = {}
    for line in plane.admin.get("/metrics").splitlines():
        if line.startswith(f"{REVIEWS}_bucket{{") and "bindings.carico.dev" in line:
            found = re.search(r'le="([^"]+)"', line)
            assert found is not None
            bound_s = float(found[1])
            counts[bound_s] = counts.get(bound_s, 0.0) + float(line.rsplit(" ", 1)[1])
    return counts


def _p99_ms(before: dict[float, float], after: dict[float, float]) -> float:
    """By a histogram: between two bounds it is taken to rise evenly, as Prometheus does.

    >>> _p99_ms({}, {0.025: 90.0, 0.1: 100.0, 0.5: 100.0})
    92.5
    """
    counts = [(bound_s, count - before.get(bound_s, 0.0)) for bound_s, count in sorted(after.items())]
    wanted = 0.99 * counts[-1][1]
    at = bisect_left([count for _, count in counts], wanted)
    (low_s, below), (high_s, upto) = [*pairwise([(0.0, 0.0), *counts])][at]
    return 1e3 * (low_s + (high_s - low_s) * (wanted - below) / (upto - below))
