"""Nodes drawn at random, the same for every seed of their history.

A *random mixture* has one to three workloads on a host that drifts, steps and runs cron jobs: six of them belong to the
claims. A *wide* node may have everything at once: Pods that sleep before they work, leaks, jobs of half a minute, ramps
of a minute, demand that swings by a third, Pods that differ by a third. It is there to find out where the number
breaks, and none of them was looked at when the claims were made.
"""

from dataclasses import replace

import numpy as np

from lab.sim.simnode import HostSpec, NodeSpec, WorkloadSpec, system

CORES = (2, 4, 8, 16, 32)


def random_node(number: int) -> NodeSpec:
    """A mixture of workloads on a host that is busy by itself."""
    rng = np.random.default_rng(70_000 + number)
    cores = int(rng.choice(CORES))
    workloads = tuple(
        WorkloadSpec(
            f"workload-{i}",
            cores=float(rng.uniform(0.03, 0.2) * cores),
            memory=float(rng.uniform(0.003, 0.06)),
            spread=float(rng.uniform(0.02, 0.2)),
            weight=int(rng.integers(1, 4)),
            ramp_s=float(rng.choice([0, 0, 10, 30])),
            burst=float(rng.choice([0, 0, 0.2])),
        )
        for i in range(int(rng.integers(1, 4)))
    )
    host = HostSpec(
        base=(float(rng.uniform(0.01, 0.08)), float(rng.uniform(0.05, 0.25))),
        drift=float(rng.choice([0, 0.1, 0.2])),
        steps=float(rng.choice([0, 0.1])),
        cron=float(rng.choice([0, 0.1])),
    )
    return NodeSpec(f"random mixture {number}", cores, workloads, system(int(rng.integers(3, 16))), host, every_s=8)


def wide_node(number: int) -> NodeSpec:
    """Everything may come together. The model is not told what the host uses: it is what no Pod does."""
    rng = np.random.default_rng(910_000 + number)
    cores = int(rng.choice(CORES))
    workloads = tuple(_wide_workload(f"workload-{i}", cores, rng) for i in range(int(rng.integers(1, 5))))
    host = HostSpec(
        base=(float(rng.uniform(0.01, 0.1)), float(rng.uniform(0.05, 0.3))),
        drift=float(rng.choice([0, 0, 0.1, 0.25])),
        steps=float(rng.choice([0, 0, 0.1, 0.2])),
        cron=float(rng.choice([0, 0, 0.1, 0.25])),
        boot=float(rng.choice([0, 0, 0.3])),
    )
    present, every_s = system(int(rng.integers(3, 16))), float(rng.choice([5, 8, 12, 25]))
    return NodeSpec(f"wide {number}", cores, workloads, present, host, every_s=every_s, quotas_told=False)


def _wide_workload(name: str, cores: int, rng: np.random.Generator) -> WorkloadSpec:
    workload = WorkloadSpec(
        name,
        cores=float(rng.uniform(0.03, 0.25) * cores),
        memory=float(rng.uniform(0.002, 0.08)),
        spread=float(rng.uniform(0.02, 0.3)),
        weight=int(rng.integers(1, 5)),
        ramp_s=float(rng.choice([0, 0, 5, 10, 30, 60])),
        burst=float(rng.choice([0, 0, 0.2, 0.35])),
    )
    character = rng.uniform()
    if character < 0.12:
        return replace(workload, asleep_s=(10, float(rng.uniform(60, 300))), life_s=(300, 600))
    if character < 0.22:
        return replace(workload, cores=0.3 * workload.cores, memory=0.02, leak_per_s=float(rng.uniform(2e-5, 8e-5)))
    if character < 0.32:
        return replace(workload, cores=float(rng.uniform(0.01, 0.05) * cores), memory=float(rng.uniform(0.04, 0.12)))
    if character < 0.42:
        return replace(workload, life_s=(20, 60), ramp_s=min(workload.ramp_s, 5.0))
    return workload
