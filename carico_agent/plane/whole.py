"""Cores for all components of one machine: the workflow of *MerKury* section 4.4.3, one cycle of it. Pure.

Idle components first, then a check whether cores are short at all, then equations (5) and (6), then (10) if the load is
more than there is, else local-unsteady components and (9) for the rest; at the end what throttling says (θ) and how far
one step may go (v). A grid search stands for the evolutionary algorithm (allocation.py).

Left out: where the master instances of the scheduler and the controller manager run. The document moves them between
machines; Kubernetes elects them by Lease and has no way to say where, short of killing the one that leads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from carico_agent.plane.allocation import (
    Component,
    SchedulerLoad,
    calibrated,
    controller_cores,
    limited_step,
    proportional,
    split,
    throughput,
)
from carico_agent.plane.curve import LINEAR, Curve
from carico_agent.plane.queueing import Load
from carico_agent.plane.sizing import NoRecommendation, check_load, size
from carico_agent.plane.weights import ANSWERING, OTHERS, Throttled, adjusted

GROUP_A = ("kube-apiserver", "etcd")
SCHEDULER, CONTROLLER = "kube-scheduler", "kube-controller-manager"
NAMES = (*GROUP_A, SCHEDULER, CONTROLLER)

State = Literal["idle", "steady", "local-unsteady", "global-unsteady"]


@dataclass(frozen=True, slots=True)
class ComponentWindow:
    """One component in the last window."""

    load: Load
    curve: Curve = LINEAR
    weight: float = 1.0
    waiting: float = 0.0
    """Requests, or Pods of the scheduler, in its queue."""
    min_cores: float = 0.0
    """Its CPU request: what it keeps while it is idle."""
    now_cores: float | None = None
    """What it may use now; None: no limit, so that a step has no bound."""
    throttled: float | None = None
    """τ; None: unknown."""
    from_scheduler: float = 0.0
    """Requests of group A that came from the scheduler, and from the controller manager."""
    from_controller: float = 0.0


@dataclass(frozen=True, slots=True)
class Given:
    """What one component gets."""

    cores: float
    state: State
    weight: float
    seats: int | None = None
    queue: int | None = None
    wait_s: float | None = None


def allocate(
    parts: Mapping[str, ComponentWindow], cores: float, availability: float, busy_ratio: float = 0.7
) -> dict[str, Given] | str:
    """Cores of each component, or in words why nothing needs to change; raises NoRecommendation."""
    if not parts:
        raise NoRecommendation("no components: name at least one")
    idle = {name: part for name, part in parts.items() if not part.load.requests and not part.waiting}
    busy = {name: part for name, part in parts.items() if name not in idle}
    for part in busy.values():
        check_load(part.load)
    needed = sum(part.load.cores for part in busy.values())
    if needed < busy_ratio * cores:  # step 4
        return f"{needed:.2f} of {cores:g} cores are needed, less than {busy_ratio:.0%}: nothing competes"
    # step 3: c* = max(c_req, c_utl)
    given = {name: Given(max(part.min_cores, part.load.cores), "idle", part.weight) for name, part in idle.items()}
    left = cores - sum(one.cores for one in given.values())
    if left <= 0:
        raise NoRecommendation(f"idle components keep {cores - left:g} of {cores:g} cores: none are left")
    given |= _busy(busy, left, availability)
    return _corrected(parts, given, cores)


def _busy(busy: Mapping[str, ComponentWindow], cores: float, availability: float) -> dict[str, Given]:
    controller = busy.get(CONTROLLER)
    own = _controller(busy, controller) if controller else 0.0
    factor = own / controller.load.cores if controller else 1.0
    loads = {name: _calibrated(part, factor) if name in GROUP_A else part for name, part in busy.items()}
    steady_cores = sum(part.load.cores for name, part in loads.items() if name in GROUP_A) + own
    if steady_cores >= cores:  # step 6, (10)
        shares = proportional({name: part.load.core_s for name, part in loads.items()}, cores)
        return {name: _sized(name, part, shares[name], availability, "global-unsteady") for name, part in loads.items()}
    found: dict[str, Given] = {}
    for name, part in loads.items():
        if name in GROUP_A and part.curve.peak()[1] <= part.load.cores:  # optimistic: c/Δt, whatever f says
            found[name] = _sized(name, part, part.load.cores, availability, "local-unsteady")
    if controller:
        found[CONTROLLER] = Given(own, "steady", controller.weight)
    left = cores - sum(one.cores for one in found.values())
    return found | _steady({name: part for name, part in loads.items() if name not in found}, left, availability)


def _controller(busy: Mapping[str, ComponentWindow], controller: ComponentWindow) -> float:
    mean = sum(part.weight for part in busy.values()) / len(busy)
    return controller_cores(controller.weight, mean, controller.load.core_s, controller.load.window_s)


def _calibrated(part: ComponentWindow, controller: float) -> ComponentWindow:
    """Step 5: equation (6) with S = 0, which takes the scheduler's requests out."""
    load = part.load
    outside = load.requests - part.from_scheduler - part.from_controller
    requests = calibrated(outside, part.from_scheduler, part.from_controller, 0, 0, controller)
    if requests <= 0:
        return part
    return replace(part, load=Load(requests, load.core_s * requests / load.requests, load.window_s))


def _steady(parts: Mapping[str, ComponentWindow], cores: float, availability: float) -> dict[str, Given]:
    """(9) for group A and the scheduler."""
    answering = [name for name in GROUP_A if name in parts]
    waiting = parts.get(SCHEDULER)
    scheduler = SchedulerLoad(waiting.load, waiting.waiting, waiting.weight) if waiting else None
    if not answering:
        return {SCHEDULER: Given(cores, "steady", waiting.weight)} if waiting else {}
    group_a = [Component(parts[name].load, parts[name].curve, parts[name].weight) for name in answering]
    chosen, rest = split(group_a, scheduler, cores, availability)
    given = {
        name: _sized(name, parts[name], own, availability, "steady")
        for name, own in zip(answering, chosen, strict=True)
    }
    if waiting:
        given[SCHEDULER] = Given(rest, "steady", waiting.weight)
    return given


def _sized(name: str, part: ComponentWindow, cores: float, availability: float, state: State) -> Given:
    if name not in GROUP_A:
        return Given(cores, state, part.weight)
    sized = size(part.load, part.curve, cores, availability)
    return Given(cores, state, part.weight, sized.seats, sized.queue, sized.performance.wait_s)


def _corrected(parts: Mapping[str, ComponentWindow], given: dict[str, Given], cores: float) -> dict[str, Given]:
    """θ of what is not throttled goes to what is, and no component moves by more than v·C at once."""
    rows = {
        name: Throttled(one.cores, one.weight, parts[name].throttled, ANSWERING if name in GROUP_A else OTHERS)
        for name, one in given.items()
    }
    after = adjusted(rows)
    found = {}
    for name, one in given.items():
        before = parts[name].now_cores
        wanted = after[name].cores
        moved = wanted if before is None else limited_step(before, wanted, cores)
        found[name] = replace(one, cores=moved, weight=after[name].weight)
    return found


def pods_per_s(part: ComponentWindow, cores: float) -> float:
    """(4): what the scheduler does with so many cores."""
    return throughput(cores, part.load, part.waiting) if part.load.core_s else 0.0
