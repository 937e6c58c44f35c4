"""The arms of lab/plane: what each of them changes on the control plane, and the loops that do it.

An arm is a set of mechanisms, so that two arms that differ in one mechanism show what that one does:

| mechanism | what |
|---|---|
| seats | `carico plane --serve` with `seats = "write"` |
| weights | the rule of the plugin `control_plane`, as CPU shares |
| quotas | cores by *MerKury* section 4.4.3 (equations 4 to 10, θ and v), as CFS quotas |
| f* and q* | seats and queue lengths by the same cycle |
| wrapper | *MerKury*'s request wrapper: LISTs with resourceVersion=0 and a limit |

`document` is *MerKury* as it is written: quotas, f*, q* and the wrapper. What it leaves out is the placement of master
instances, for which Kubernetes has no means.
"""

import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from carico_agent.plane.components import load_of
from carico_agent.plane.curve import LINEAR, Curve
from carico_agent.plane.exposition import read
from carico_agent.plane.processes import throttled_ratio
from carico_agent.plane.seats import read_levels, spec_of
from carico_agent.plane.shares import RESERVE, reserve_for
from carico_agent.plane.sizing import NoRecommendation, queue_length_limit
from carico_agent.plane.whole import ComponentWindow, Given, allocate
from carico_agent.plane.window import WANTED, Scrape, Window, between
from lab.plane.parts import PARTS, LabPlane
from lab.support.kube_admin import AdminError
from plugins.control_plane.weights import Weight, stepped

CORES = 1.0
STEP_S = 5.0
"""Period of the service and of the other arms' loops: 60 s in production, where a day is long."""
MIN_CORES = 0.05
LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
GREEDY_LEVEL = "workload-low"
"""Where Kubernetes' own FlowSchemas send a service account."""
SERVER_SEATS = 600


@dataclass(frozen=True, slots=True)
class Arm:
    """Which mechanisms are on."""

    seats: bool = False
    weights: bool = False
    quotas: bool = False
    sized: bool = False
    """f* and q*."""
    wrapper: bool = False


ARMS = {
    "nothing": Arm(),
    "seats": Arm(seats=True),
    "wrapper": Arm(wrapper=True),
    "wrapper+seats": Arm(seats=True, wrapper=True),
    "weights": Arm(weights=True),
    "seats+weights": Arm(seats=True, weights=True),
    "quotas": Arm(quotas=True),
    "document": Arm(quotas=True, sized=True, wrapper=True),
}


class ArmLab(Protocol):
    """What a loop needs of the lab."""

    plane: LabPlane
    curve: list[tuple[float, float]]


def steering(arm: Arm, lab: ArmLab) -> "Steering | None":
    """The loop of an arm, started; None: it has none."""
    if arm.weights:
        return Weights(lab).start()
    return DocumentMethod(lab, arm.sized).start() if arm.quotas else None


class Steering(ABC):
    """A loop beside a run: once per STEP_S."""

    def __init__(self, lab: ArmLab) -> None:
        self.lab, self._ended, self.steps = lab, threading.Event(), 0
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> "Steering":
        self._thread.start()
        return self

    def _loop(self) -> None:
        while not self._ended.wait(STEP_S):
            with suppress(OSError, AdminError):  # a component that does not answer in time: the next step is soon
                self.step()
                self.steps += 1

    @abstractmethod
    def step(self) -> None:
        """Look, and change what follows."""

    def stop(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()


class Weights(Steering):
    """The plugin's rule on this machine's cgroups; held up is the time its threads stood in the run queue."""

    def __init__(self, lab: ArmLab) -> None:
        self._weights = {part: Weight() for part in PARTS}
        self._waited_s = {part: waited_s(lab, part) for part in PARTS}
        super().__init__(lab)

    def step(self) -> None:
        for part in PARTS:
            now_s = waited_s(self.lab, part)
            ratio = min(1.0, max(0.0, now_s - self._waited_s[part]) / STEP_S)
            self._waited_s[part] = now_s
            answering = part in ("kube-apiserver", "etcd")
            self._weights[part] = stepped(self._weights[part], ratio, time.monotonic(), answering, 30.0)
            self.lab.plane.groups.weight(part, min(8.0, self._weights[part].factor))


def waited_s(lab: ArmLab, part: str) -> float:
    """Time that threads of this part were ready and had no CPU (/proc/PID/task/*/schedstat)."""
    process = lab.plane._processes[part]
    whole = 0
    for task in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread that ended meanwhile
            whole += int(task.read_text().split()[1])
    return whole / 1e9


class DocumentMethod(Steering):
    """One cycle of *MerKury* section 4.4.3 per step (plane/whole.py): cores as CFS quotas; if it is `sized`, seats and
    queue lengths, too."""

    def __init__(self, lab: ArmLab, sized: bool) -> None:
        self._sized = sized
        self._old = readings(lab)
        self._given: dict[str, float] = {}
        self._weights = dict.fromkeys(PARTS, 1.0)
        self._periods = {part: lab.plane.groups.periods(part) for part in PARTS}
        self._queue_before: int | None = None
        super().__init__(lab)

    def step(self) -> None:
        new, old = readings(self.lab), self._old
        self._old = new
        windows = {part: between(old[part], new[part]) for part in PARTS}
        parts = {part: self._part(part, window) for part, window in windows.items() if window is not None}
        with suppress(NoRecommendation):  # a component that did nothing in these seconds
            self.apply(allocate({name: part for name, part in parts.items() if part}, CORES, 0.999))

    def _part(self, name: str, window: Window) -> ComponentWindow | None:
        load = load_of(name, window)
        before, self._periods[name] = self._periods[name], self.lab.plane.groups.periods(name)
        if load is None:
            return None
        curve = Curve.of(self.lab.curve) if name == "kube-apiserver" and self.lab.curve else LINEAR
        throttled = throttled_ratio(before, self._periods[name])
        waiting = window.now("scheduler_pending_pods") or 0.0 if name == "kube-scheduler" else 0.0
        return ComponentWindow(load, curve, self._weights[name], waiting, MIN_CORES, self._given.get(name), throttled)

    def apply(self, found: dict[str, Given] | str) -> None:
        """Each component gets its own cores: by name, whatever the order in which they come."""
        if isinstance(found, str):
            return
        for name, one in found.items():
            self._given[name], self._weights[name] = max(MIN_CORES, one.cores), one.weight
            self.lab.plane.groups.quota(name, self._given[name])
        api = found.get("kube-apiserver")
        if self._sized and api is not None and api.seats is not None and api.queue is not None:
            self._hold_back(api.seats)
            self._shorten(queue_length_limit(api.queue))

    def _hold_back(self, seats: int) -> None:
        admin = self.lab.plane.admin
        shares = reserve_for(SERVER_SEATS, read_levels(admin.get(LEVELS)["items"], "v1").shares, seats)
        body = {"metadata": {"name": RESERVE}, "spec": spec_of("v1", max(1, shares))}
        try:
            admin.post(LEVELS, body)
        except AdminError as error:
            if error.status != 409:
                raise
            admin.merge(f"{LEVELS}/{RESERVE}", body)

    def _shorten(self, length: int) -> None:
        """q* of the greedy client's level."""
        path = f"{LEVELS}/{GREEDY_LEVEL}"
        if self._queue_before is None:
            queuing = self.lab.plane.admin.get(path)["spec"]["limited"]["limitResponse"]["queuing"]
            self._queue_before = int(queuing[QUEUE])
        self.lab.plane.admin.merge(path, _queue_of(length, "false"))

    def stop(self) -> None:
        super().stop()
        admin = self.lab.plane.admin
        with suppress(AdminError):  # it never came to that
            admin.delete(f"{LEVELS}/{RESERVE}")
        if self._queue_before is not None:
            admin.merge(f"{LEVELS}/{GREEDY_LEVEL}", _queue_of(self._queue_before, "true"))


QUEUE = "queueLengthLimit"


KEPT_BY_THE_SERVER = "apf.kubernetes.io/autoupdate-spec"
"""While this annotation is "true", kube-apiserver writes its own levels back as they were, within a minute."""


def _queue_of(length: int, kept: str) -> dict[str, Any]:
    meta = {"annotations": {KEPT_BY_THE_SERVER: kept}}
    return {"metadata": meta, "spec": {"limited": {"limitResponse": {"queuing": {QUEUE: length}}}}}


def readings(lab: ArmLab) -> dict[str, Scrape]:
    return {part: Scrape(time.monotonic(), read([lab.plane.metrics(part).encode()], WANTED)) for part in PARTS}
