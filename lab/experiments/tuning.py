"""How the defaults were chosen: training workloads and seeds that no other section reports."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from carico_agent.core import ModelConfig
from carico_agent.publish.gate import GateConfig
from carico_agent.schedule.policy import PodCapacity
from lab import accuracy
from lab.experiments.common import TRAINING_SEEDS, Section, mean_jct, mean_pct, runs
from lab.sim.cluster import Machine
from lab.sim.engine import Setup
from lab.sim.fleet import AgentConfig
from lab.sim.schedulers.carico import Carico
from lab.sim.workload import Job, Kind
from lab.synthetic import SCENARIOS

SHORT = Kind("train-short", work_core_s=4.0, work_cv=0.15)
LONG = Kind("train-long", work_core_s=11.0, work_cv=0.15)
WIDE = Kind("train-wide", work_core_s=9.0, work_cv=0.15, threads=1.5)
WORKLOADS = (
    (Setup(nodes=12), [Job(SHORT, 600)]),
    (Setup(nodes=8, machine=Machine(cores=8)), [Job(LONG, 500)]),
    (Setup(nodes=12), [Job(WIDE, 250), Job(SHORT, 250)]),
)
RATIOS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
GATES = ((0.1, 0.0), (0.3, 0.1), (0.5, 0.2), (0.3, 0.5))


def cost(scheduler: object, which: range = TRAINING_SEEDS) -> tuple[float, float, float]:
    """Mean over the training workloads of ln JCT and ln mean PCT, and API writes per node and minute."""
    jct, pct, writes = [], [], []
    for setup, jobs in WORKLOADS:
        results = runs(scheduler, jobs, which, setup)
        jct.append(np.log(mean_jct(results)))
        pct.append(np.log(mean_pct(results)))
        writes += [r.writes / setup.nodes / (r.jct_s / 60) for r in results]
    return float(np.mean(jct)), float(np.mean(pct)), float(np.mean(writes))


def section(quick: bool) -> Section:
    s = Section("How the defaults were chosen", quick=quick)
    s.say(
        f"Training seeds {list(TRAINING_SEEDS)} and three workloads that appear nowhere else: 600 Pods of 4 "
        "core seconds on "
        "12 × 4 cores, 500 of 11 on 8 × 8 cores, and a mix of 4 core seconds on one thread and 9 on 1.5 threads. All "
        "numbers are relative to the paper's rule (ratio 1, no limit on starting Pods); less is better. The "
        "choice minimises "
        "the product of both among those that do not lengthen the job (by more than half a percent)."
    )
    base = cost(lambda: Carico(policy=PodCapacity(starting_ratio=1.0)))
    rows = []
    for ratio in RATIOS:
        jct, pct, _ = cost(lambda ratio=ratio: Carico(policy=PodCapacity(starting_ratio=ratio)))
        jct, pct = float(np.exp(jct - base[0])), float(np.exp(pct - base[1]))
        rows.append((ratio, jct, pct, f"{jct * pct:.3f}"))
    s.table(("starting_ratio", "JCT", "mean PCT", "product"), rows)
    best = min((row for row in rows if row[1] <= 1.005), key=lambda row: float(row[3]))[0]
    default = PodCapacity().starting_ratio
    s.claim(f"starting_ratio = {default} is the best on the training set ({best})", best == default, headline=False)
    rows, base = [], cost(Carico, TRAINING_SEEDS[:1])
    for rise, fall in GATES:
        gate = GateConfig(rise=rise, fall=fall)
        jct, pct, writes = cost(lambda gate=gate: Carico(AgentConfig(gate=gate)), TRAINING_SEEDS[:1])
        rows.append((f"{rise}, {fall}", float(np.exp(jct - base[0])), float(np.exp(pct - base[1])), writes))
    s.table(
        ("hysteresis: rise, fall [Pods]", "JCT / default", "mean PCT / default", "writes per node and minute"), rows
    )
    s.say(
        "The core's own parameters, one changed at a time; RMS error of Pod-Capacity [Pods], mean over the "
        "synthetic nodes of "
        "lab/synthetic.py:"
    )
    s.table(("parameter", "half", "default", "double"), _sensitivity())
    return s


def _sensitivity() -> Iterator[tuple[object, ...]]:
    default = ModelConfig()
    for name in (
        "settle_s",
        "ema_slow_s",
        "ema_fast_s",
        "ema_patience_s",
        "ema_band",
        "noise_sd",
        "forget",
        "halt_most_s",
    ):
        value = getattr(default, name)
        yield f"{name} = {value:g}", *(_rms(**{name: value * factor}) for factor in (0.5, 1.0, 2.0))


def _rms(**changes: float) -> float:
    original = accuracy.ModelConfig
    try:
        accuracy.ModelConfig = lambda **given: replace(original(**given), **changes)  # type: ignore[assignment,misc]
        return float(
            np.mean(
                [
                    accuracy.score(scenario, "resource-space", seed, length_s=200.0).rms
                    for scenario in SCENARIOS
                    for seed in TRAINING_SEEDS[:2]
                ]
            )
        )
    finally:
        accuracy.ModelConfig = original  # type: ignore[misc]
