"""Every container's recent past, kept for `carico recommend`: one reading a minute each, staggered. With `--record`
the readings go into the trace, too.

All of it happens in one thread of its own: reading the cgroups, taking the minutes in, answering and saving. The event
loop only awaits it.
"""

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web

from carico_agent.lib.kube.declared import DeclaredPod
from carico_agent.lib.net.http import ApiError, Handler, answer
from carico_agent.lib.supervise.files import replace_file
from carico_agent.lib.supervise.workers import Workers, WorkersBusy
from carico_agent.lib.trace.containers import ContainerReading, PodsRow
from carico_agent.node.pods.container_history import LOOK_S, ContainerMinute, ContainerReader, ContainerTotals
from carico_agent.node.pods.pods import Pod
from carico_agent.node.pods.watch import Runtime
from carico_agent.node.state import set_aside
from carico_agent.recommend.history import BadHistory, MinuteSample
from carico_agent.recommend.store import ContainerOwner, HistoryStore
from carico_agent.recommend.workload import GUARANTEED, Resources, labelled

log = logging.getLogger(__name__)

SAVE_S = 600.0
"""Saving 330 containers takes 0.14 s of CPU: every ten minutes that is 0.02 % of a core."""
ANSWER_S = 5.0


class ContainerHistories:
    """`run` is for the supervisor."""

    def __init__(
        self,
        runtime: Runtime,
        node: str,
        cores: int,
        memory_bytes: float,
        path: Path,
        record: Callable[[PodsRow], None] | None = None,
        declared: Callable[[str], DeclaredPod | None] = lambda uid: None,
    ) -> None:
        """`record`, in the event loop, gets what was read in each look.
        `declared` is what the API server has about the Pod with a UID; it is asked in the thread."""
        self._runtime, self._node, self._size, self._path = runtime, node, (cores, memory_bytes), path
        self._reader: ContainerReader = runtime.container_reader()
        self._store = HistoryStore()
        self._workers = Workers("container history", 1)
        self._saved_s = time.monotonic()
        self._trouble, self._record, self._declared = "", record, declared

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {"/v1/history/containers": {"GET": self._answer}}

    async def run(self) -> None:
        await self._workers.run(self._load)
        while True:
            await asyncio.sleep(LOOK_S)
            if self._runtime.pods or self._store.histories:
                row = await self._workers.run(self._poll, time.monotonic(), time.time())
                if self._record is not None and row.containers:
                    self._record(row)

    async def save_last(self) -> None:
        """At the end: what was seen since the last ten minutes."""
        if self._store.histories:
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._workers.run(self._save)
            except (TimeoutError, WorkersBusy) as error:
                log.warning("histories of containers are not saved: %s", error or "the disk does not answer")

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """what each container used lately: for `carico recommend`"""
        try:
            async with asyncio.timeout(ANSWER_S):
                return answer(await self._workers.run(self._store.answer, self._node, *self._size))
        except (TimeoutError, WorkersBusy) as error:
            raise ApiError(503, "the histories are being read; ask again", {"Retry-After": "1"}) from error

    # ---- in the thread

    def _poll(self, now_s: float, wall_s: float) -> PodsRow:
        readings = []
        for minute in self._reader.tick(now_s, wall_s, self._runtime.pods):
            owner = self._owner(minute)
            self._store.observe(owner, MinuteSample(*minute.data))
            if self._record is not None:
                readings.append(_reading(owner, minute.totals))
        if now_s - self._saved_s >= SAVE_S:
            self._save()
        return PodsRow(now_s, wall_s, tuple(readings))

    def _owner(self, minute: ContainerMinute) -> ContainerOwner:
        """As the API server has it; else by labels, by the place in the cgroup tree and by the kernel's limits."""
        pod = self._runtime.pods.get(minute.pod) or Pod(minute.pod, minute.pod, "")
        said = self._declared(pod.uid) if pod.uid else None
        if said is not None and minute.container in said.containers:
            kind, workload = said.kind, said.name
            current = Resources(**asdict(said.containers[minute.container]), qos=said.qos)
        else:
            found = labelled(pod.namespace, pod.name, pod.labels)
            kind, workload = ("", minute.workload.partition("/")[2]) if found.guessed else (found.kind, found.name)
            current = _measured(minute.totals, qos_of(pod.cgroup))
        return ContainerOwner(
            pod.namespace, pod.name, minute.container, minute.container_id, kind, workload, current=current
        )

    def _load(self) -> None:
        try:
            self._store = HistoryStore.from_state(_object(self._path.read_bytes()))
        except FileNotFoundError:
            return
        except (OSError, ValueError, BadHistory) as error:
            set_aside(self._path, str(error))

    def _save(self) -> None:
        self._saved_s = time.monotonic()
        trouble = ""
        try:
            encoded = json.dumps(self._store.state(), separators=(",", ":")).encode()
            replace_file(self._path, encoded, 0o600, synced=True)
        except OSError as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            log.warning("histories of containers cannot be saved: %s", trouble)
        self._trouble = trouble


def _reading(owner: ContainerOwner, totals: ContainerTotals) -> ContainerReading:
    """As a trace holds it."""
    return ContainerReading(
        owner.namespace,
        owner.pod,
        owner.container,
        kind=owner.kind or None,
        workload=owner.workload or None,
        cpu_usage_usec=totals.cpu_usec,
        memory_bytes=int(totals.memory_bytes) if math.isfinite(totals.memory_bytes) else None,
        oom_kills=totals.oom_kills,
        nr_periods=totals.periods,
        nr_throttled=totals.throttled,
        request_cores=owner.current.request_cores,
        request_bytes=owner.current.request_bytes,
        limit_cores=owner.current.limit_cores,
        limit_bytes=owner.current.limit_bytes,
        qos=owner.current.qos or None,
    )


def _measured(totals: ContainerTotals, qos: str) -> Resources:
    """Limits as the kernel has them; a Guaranteed Pod's requests are its limits."""
    limits = totals.limit_cores, totals.limit_bytes
    return Resources(*(limits if qos == GUARANTEED else (None, None)), *limits, qos)


def qos_of(cgroup: str) -> str:
    """The kubelet puts Pods below their QoS class, Guaranteed ones directly below kubepods; empty: not its tree.

    >>> qos_of("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234.slice"), qos_of("/kubepods/pod1234")
    ('Burstable', 'Guaranteed')
    """
    if "kubepods" not in cgroup:
        return ""
    return "Burstable" if "burstable" in cgroup else "BestEffort" if "besteffort" in cgroup else GUARANTEED


def _object(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("an object is expected")
    return value
