"""The simulated node is the measured one, and runs repeat exactly."""

import numpy as np
import pytest

from lab.experiments.calibration import MEASURED, simulated
from lab.sim.engine import Setup, run
from lab.sim.schedulers.carico import Carico
from lab.sim.schedulers.kube import Kube
from lab.sim.schedulers.oracle import Oracle
from lab.sim.workload import PI, SKLEARN, PodBatch


@pytest.mark.parametrize("loops", MEASURED)
def test_cpu_channel_is_the_measured_one(loops: int) -> None:
    utilisation, pressure = simulated(loops)
    assert utilisation == pytest.approx(MEASURED[loops][0], abs=0.02)
    assert pressure == pytest.approx(MEASURED[loops][1], abs=0.05)


def test_same_seed_same_run() -> None:
    first, second = (run(Carico(), [PodBatch(PI, 60)], 5, Setup(nodes=3)) for _ in range(2))
    assert (first.end_s == second.end_s).all() and (first.node == second.node).all()


def test_every_scheduler_meets_the_same_pods() -> None:
    a, b = (run(make(), [PodBatch(PI, 60)], 5, Setup(nodes=3)) for make in (Kube, Oracle))
    assert (a.created_s == b.created_s).all()
    assert a.finished and b.finished
    assert b.pct_s().mean() < a.pct_s().mean()


def test_work_is_conserved() -> None:
    """No more CPU time is handed out than there are cores, and every Pod gets what it needs."""
    r = run(Kube(), [PodBatch(PI.asking(100), 80)], 6, Setup(nodes=2))
    assert r.jct_s >= 80 * PI.work_core_s * 0.95 / (2 * 4)
    assert r.pct_s().min() >= PI.work_core_s * 0.6


def test_a_node_without_memory_kills_and_the_pod_runs_again() -> None:
    r = run(Kube(), [PodBatch(SKLEARN.asking(100, 0), 13)], 7, Setup(nodes=1, max_s=900))
    assert r.kills > 0
    assert r.finished and np.isfinite(r.end_s).all()


def test_rehearsal_is_not_measured() -> None:
    r = run(Carico(), [PodBatch(PI, 20)], 8, Setup(nodes=2, rehearsal=(PI,)))
    assert len(r.end_s) == 20 and r.start_s.min() > 0
