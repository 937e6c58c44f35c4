"""Synthetic telemetry with known truth: bursts of equal Pods on one node, start spikes, noise.

The node behaves as the table measured on a real one (lab/experiments/calibration.py): usage rises linearly
with Pods and is cut off at 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Scenario:
    """A node and its Pods; usage is a share of the node per resource (cpu: share of twice the cores)."""

    name: str
    cores: int
    base: tuple[float, float] = (0.01, 0.2)
    cost: tuple[float, float] = (0.125, 0.002)
    noise_sd: float = 0.02
    pods: tuple[int, int] = (1, 7)
    burst_s: tuple[float, float] = (8.0, 20.0)
    pause_s: tuple[float, float] = (4.0, 10.0)
    limits: dict[str, float] = field(default_factory=dict)

    def truth(self, pods: int) -> float:
        """How many more Pods really fit."""
        limits = (self.limits.get("cpu", 1.0), self.limits.get("memory", 1.0))
        rooms = ((limit - b - c * pods) / c for limit, b, c in zip(limits, self.base, self.cost, strict=True))
        return max(0.0, min(rooms))


@dataclass(frozen=True, slots=True)
class Sample:
    t: float
    usage: tuple[float, float]
    pods: int
    truth: float


SCENARIOS = (
    Scenario("4 cores, one-core Pods", cores=4),
    Scenario("8 cores, 0.7-core Pods", cores=8, cost=(0.7 / 16, 0.002)),
    Scenario("memory-bound", cores=8, cost=(0.02, 0.09)),
    Scenario("never idle", cores=4, pods=(2, 7), pause_s=(0.0, 0.0)),
    Scenario("overloaded", cores=4, pods=(1, 12)),
)


def samples(scenario: Scenario, seed: int, length_s: float, period_s: float = 0.1) -> Iterator[Sample]:
    """Telemetry at 10 Hz: bursts of Pods with pauses; each change comes with a spike of 200 ms on the cpu."""
    rng = np.random.default_rng(seed)
    pods, change_t, spike_until_t, pausing = 0, float(rng.uniform(*scenario.pause_s)), -1.0, True
    for tick in range(int(length_s / period_s)):
        t = tick * period_s
        if t >= change_t:
            pausing = not pausing and scenario.pause_s[1] > 0
            pods = 0 if pausing else int(rng.integers(scenario.pods[0], scenario.pods[1] + 1))
            change_t = t + float(rng.uniform(*(scenario.pause_s if pausing else scenario.burst_s)))
            spike_until_t = t + 0.2
        spike = 0.5 if t < spike_until_t else 0.0
        cpu, memory = (b + c * pods for b, c in zip(scenario.base, scenario.cost, strict=True))
        noisy = cpu + spike + rng.normal(0, scenario.noise_sd), memory + rng.normal(0, scenario.noise_sd / 10)
        yield Sample(t, (float(np.clip(noisy[0], 0, 1)), float(np.clip(noisy[1], 0, 1))), pods, scenario.truth(pods))
