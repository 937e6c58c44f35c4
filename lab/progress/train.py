"""Five kinds of small training loops, for real runs: `python -m lab.progress.train KIND STEPS CORE FILE`.

Each step takes the same CPU time, a hundredth of a second at most. The job pins itself to one core, reports after each
step as any job would, and writes (monotonic time, CPU seconds) at half way and at its end to FILE.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from carico_agent.progress.client import Reporter

CALIBRATE_S = 0.5


def linear() -> Iterator[None]:
    """Linear regression by stochastic gradient descent."""
    rng, weights = np.random.default_rng(1), np.zeros(256)
    while True:
        x = rng.normal(size=(256, 256))
        weights -= 0.01 * x.T @ (x @ weights - x.sum(axis=1)) / 256
        yield


def logistic() -> Iterator[None]:
    """Logistic regression on one fixed set."""
    rng, weights = np.random.default_rng(2), np.zeros(128)
    x = rng.normal(size=(4096, 128))
    y = x[:, 0] > 0
    while True:
        weights -= 0.1 * x.T @ (1 / (1 + np.exp(-(x @ weights))) - y) / len(x)
        yield


def k_means() -> Iterator[None]:
    """Lloyd's iterations, 16 clusters in the plane."""
    rng = np.random.default_rng(3)
    points, centres = rng.normal(size=(4096, 2)), rng.normal(size=(16, 2))
    while True:
        near = ((points[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
        for at in range(16):
            if (near == at).any():
                centres[at] = points[near == at].mean(axis=0)
        yield


def perceptron() -> Iterator[None]:
    """A network with one hidden layer."""
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(64, 128)) / 8, rng.normal(size=(128, 1)) / 11
    while True:
        x = rng.normal(size=(512, 64))
        hidden = np.tanh(x @ first)
        error = hidden @ second - x[:, :1]
        first -= 0.01 * x.T @ (error @ second.T * (1 - hidden**2)) / 512
        second -= 0.01 * hidden.T @ error / 512
        yield


def factors() -> Iterator[None]:
    """A matrix of 400 × 400 as the product of two narrow ones, by gradient descent."""
    rng = np.random.default_rng(5)
    whole, left, right = rng.normal(size=(400, 400)), rng.normal(size=(400, 8)), rng.normal(size=(8, 400))
    while True:
        error = left @ right - whole
        left, right = left - 1e-4 * error @ right.T, right - 1e-4 * left.T @ error
        yield


LOOPS: dict[str, Callable[[], Iterator[None]]] = {
    "linear regression": linear,
    "logistic regression": logistic,
    "k-means": k_means,
    "perceptron": perceptron,
    "matrix factors": factors,
}


def steps_per_s(workload: str) -> float:
    """Of CPU time, on this machine."""
    loop = LOOPS[workload]()
    for _ in islice(loop, 3):
        pass
    steps, began_s = 0, time.process_time()
    while time.process_time() - began_s < CALIBRATE_S:
        next(loop)
        steps += 1
    return steps / (time.process_time() - began_s)


def main(workload: str, steps: int, core: int, file: Path) -> None:
    os.sched_setaffinity(0, {core})
    reporter, marks = Reporter(), list[tuple[float, float]]()
    for step, _ in enumerate(islice(LOOPS[workload](), steps), 1):
        reporter.report(step, steps)
        if step in (steps // 2, steps):
            marks.append((time.monotonic(), time.process_time()))
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(marks))
    partial.rename(file)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
