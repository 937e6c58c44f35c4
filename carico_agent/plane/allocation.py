"""How the machine's cores are split between the components, and what they then need of memory.

Source: *MerKury* section 4.4.2, equations (3) to (10). Group A answers requests (API server, etcd), group B schedules
Pods, group C reconciles. Why an exhaustive search and no evolutionary algorithm: with C given by (5), two unknowns are
left (the scheduler takes what the group A components leave), 0.05 cores apart: 57,600 points on 12 cores take 60 ms.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carico_agent.plane.curve import LINEAR, Curve
from carico_agent.plane.queueing import Load
from carico_agent.plane.sizing import size

Grid = NDArray[np.float64]
GRID_CORES = 0.05
STEP_RATIO = 0.2
"""v: at most this share of all cores is moved at once."""


def throughput(cores: float, load: Load, pending: float) -> float:
    """(4) S = min(n_q/Δt, c*·n_r/c): Pods scheduled per second.

    >>> throughput(2, Load(600, 60, 60), 3000), throughput(9, Load(600, 60, 60), 3000)
    (20.0, 50.0)
    """
    return min(pending / load.window_s, cores * load.served_per_core_s)


def controller_cores(weight: float, mean_weight: float, predicted_core_s: float, window_s: float) -> float:
    """(5) c* = max(1, w_C/w̄)·c′/Δt. (c′ is core·seconds; the printed equation leaves out Δt.)

    >>> controller_cores(2, 1, 60, 60), controller_cores(1, 2, 60, 60)
    (2.0, 1.0)
    """
    return max(1.0, weight / mean_weight) * predicted_core_s / window_s


def calibrated(
    outside: float, from_scheduler: float, from_controller: float, scheduled: float, speed: float, controller: float
) -> float:
    """(6) requests of a group A component in the next window. `scheduled`: Pods scheduled in the last one; `speed`:
    S·Δt of the next; `controller`: c*_C/c_C. With speed 0 the scheduler's own are taken out (step 5 of 4.4.3).

    >>> calibrated(1000, 200, 100, scheduled=50, speed=100, controller=1.5)
    1550.0
    """
    factor = speed / scheduled if scheduled else 0.0
    return outside + factor * from_scheduler + controller * from_controller


def memory_bytes(idle: float, queued: float, queue_bytes: float, executing: float, run_bytes: float, n: float) -> float:
    """(3) m = m_0 + (L_q·m_q + L_e·m_e)/n_r.

    >>> memory_bytes(1000, 10, 500, 4, 1000, 100)
    1090.0
    """
    return idle + (queued * queue_bytes + executing * run_bytes) / n


def proportional(core_s: Mapping[str, float], cores: float) -> dict[str, float]:
    """(10) when all together need more than there is: c_i* = C·c_i′/Σc′, so that all take equally long to catch up.

    >>> proportional({"a": 30, "b": 10}, 2)
    {'a': 1.5, 'b': 0.5}
    """
    whole = sum(core_s.values())
    return {name: cores * used / whole for name, used in core_s.items()}


@dataclass(frozen=True)
class Component:
    """One component of group A."""

    load: Load
    curve: Curve = LINEAR
    weight: float = 1.0


@dataclass(frozen=True)
class SchedulerLoad:
    """Group B: Pods scheduled and their CPU time, and Pods that wait."""

    load: Load
    pending: float
    weight: float = 1.0


def split(
    answering: Sequence[Component], scheduler: SchedulerLoad | None, cores: float, availability: float
) -> tuple[list[float], float]:
    """(9) minimise w_A·W̄ + w_B/(S + 1) under (7) and (8): cores of at most two group A components and the scheduler's.

    W̄ is weighted by the components' weights and requests. Where no split keeps all steady the answer is (10)'s.
    """
    if not 1 <= len(answering) <= 2:
        raise ValueError("one or two components answer requests: an API server, perhaps etcd beside it")
    grid: Grid = GRID_CORES * np.arange(1, math.floor(cores / GRID_CORES + 1e-9) + 1, dtype=np.float64)
    waits = [_waits(component, grid, availability) for component in answering]
    shares = np.array([c.weight * c.load.requests for c in answering])
    shares = shares / shares.sum()
    if len(answering) == 1:
        waits.append(np.zeros(1))
        shares = np.append(shares, 0.0)
    second = grid if len(answering) == 2 else np.zeros(1)
    left = cores - grid[:, None] - second[None, :]
    latency = np.mean([c.weight for c in answering]) * (shares[0] * waits[0][:, None] + shares[1] * waits[1][None, :])
    objective = np.where(left >= -1e-9, latency + _scheduling(scheduler, left), np.inf)
    if not np.isfinite(objective.min()):
        return _unsteady(answering, scheduler, cores)
    row, column = np.unravel_index(int(np.argmin(objective)), objective.shape)
    chosen = [float(grid[row]), float(second[column])][: len(answering)]
    return chosen, max(0.0, float(left[row, column])) if scheduler else 0.0


def _waits(component: Component, grid: Grid, availability: float) -> Grid:
    """W per number of cores; infinite where the component does not keep up."""
    sized = [size(component.load, component.curve, float(cores), availability) for cores in grid]
    return np.array([one.performance.wait_s if one.steady else np.inf for one in sized])


def _scheduling(scheduler: SchedulerLoad | None, left: Grid) -> Grid | float:
    if scheduler is None or not scheduler.load.requests:
        return 0.0
    speed = np.minimum(scheduler.pending / scheduler.load.window_s, left * scheduler.load.served_per_core_s)
    result: Grid = scheduler.weight / (np.maximum(speed, 0.0) + 1)
    return result


def _unsteady(
    answering: Sequence[Component], scheduler: SchedulerLoad | None, cores: float
) -> tuple[list[float], float]:
    used = {str(at): component.load.core_s for at, component in enumerate(answering)}
    if scheduler is not None:
        used["scheduler"] = scheduler.load.core_s
    given = proportional(used, cores)
    return [given[str(at)] for at in range(len(answering))], given.get("scheduler", 0.0)


def limited_step(before: float, wanted: float, cores: float) -> float:
    """At most v·C away from what it was.

    >>> limited_step(2, 8, 10), limited_step(2, 3, 10)
    (4.0, 3)
    """
    most = STEP_RATIO * cores
    return wanted if abs(wanted - before) <= most else before + math.copysign(most, wanted - before)
