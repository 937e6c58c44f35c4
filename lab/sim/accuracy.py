"""How near Pod-Capacity comes to the truth: every estimator on every synthetic node, side by side.

python -m lab.sim.accuracy [--seeds 5]
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.core.estimators import ESTIMATORS
from lab.sim.synthetic import SCENARIOS, Scenario, samples


@dataclass(frozen=True)
class Score:
    rms: float
    covered: float
    """Share of samples whose interval contains the truth."""
    trusted: float
    """Share of samples not in learning mode."""


def score(
    scenario: Scenario,
    estimator: str,
    seed: int,
    prior_factor: float = 1.0,
    after_s: float = 60.0,
    length_s: float = 300.0,
    change: Callable[[ModelConfig], ModelConfig] = lambda config: config,
) -> Score:
    """RMS error of pod_capacity against truth, in Pods, from `after_s` on; churn is not announced, only Pods are.

    `change` may alter the model's parameters."""
    prior = {"cpu": min(1.0, prior_factor / (2 * scenario.cores))}
    config = ModelConfig(cores=scenario.cores, estimator=estimator, limits=scenario.limits, prior_cost=prior)
    model = CapacityModel(("cpu", "memory"), change(config))
    errors, covered, trusted = [], [], []
    for sample in samples(scenario, seed, length_s):
        model.observe(sample.t, sample.usage, sample.pods)
        if sample.t < after_s:
            continue
        e = model.estimate()
        errors.append(min(e.pod_capacity, 1000.0) - sample.truth)
        covered.append(e.low - 1e-9 <= sample.truth <= e.high + 1e-9)
        trusted.append(e.mode != "learning")
    return Score(float(np.sqrt(np.mean(np.square(errors)))), float(np.mean(covered)), float(np.mean(trusted)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(1000, 1000 + parser.parse_args().seeds)  # the defaults were tuned on seeds below 100
    print("RMS error of Pod-Capacity [Pods], worst seed; after 60 s (a wrong prior: after 120 s)\n")
    print(f"{'':34}" + "".join(f"{name:>16}" for name in ESTIMATORS))
    for prior_factor, after_s in ((1.0, 60.0), (4.0, 120.0), (0.25, 120.0)):
        for scenario in SCENARIOS:
            worst = [
                max(score(scenario, name, seed, prior_factor, after_s).rms for seed in seeds) for name in ESTIMATORS
            ]
            label = scenario.name + (f", prior x{prior_factor:g}" if prior_factor != 1 else "")
            print(f"{label:34}" + "".join(f"{rms:16.2f}" for rms in worst), flush=True)
    scores = [score(scenario, "resource-space", seed) for scenario in SCENARIOS for seed in seeds]
    print(
        f"\nresource-space: interval contains the truth in {np.mean([s.covered for s in scores]):.1%} of samples, "
        f"trusted in {np.mean([s.trusted for s in scores]):.1%}"
    )


if __name__ == "__main__":
    main()
