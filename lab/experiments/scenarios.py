"""Scenarios 3.1 and 3.2 (figures 4.6 and 4.7): a quiet node learns that its peers run a CPU-intense workload."""

import numpy as np

from carico_agent.core import CapacityModel, ModelConfig
from lab.experiments.common import FIGURES, Section, plot

CHANGE_S, END_S = 30.0, 60.0
PEERS = 18


def capacity_trace(usage: tuple[float, float], seed: int = 1000) -> tuple[list[float], list[float]]:
    """Capacity k of a node with constant `usage` whose 18 peers begin pi-2000 at 30 s; they share once a second."""
    rng = np.random.default_rng(seed)
    config = ModelConfig(cores=4, estimator="paper-dual")
    node, peer = CapacityModel(config=config), CapacityModel(config=config)
    times, values = [], []
    for tick in range(int(END_S * 10)):
        t = tick / 10
        theirs = (0.9, 0.13) if t >= CHANGE_S else usage
        node.observe(t, np.clip(usage + rng.normal(0, 0.005, 2), 0, 1).tolist(), pods=1)
        peer.observe(t, np.clip(theirs + rng.normal(0, 0.005, 2), 0, 1).tolist(), pods=1)
        if tick % 10 == 9:
            node.merge(peer.subspace, PEERS / (PEERS + 1))  # all peers alike: their mean is one of them
            times.append(t)
            values.append(node.estimate().capacity)
    return times, values


def section(quick: bool) -> Section:
    s = Section("The Capacity signal: scenarios 3.1 and 3.2", quick=quick)
    light_cpu, memory = capacity_trace((0.25, 0.12)), capacity_trace((0.05, 0.55))
    rows = []
    for name, (_, k) in (
        ("3.1: light CPU load, peers turn CPU-heavy", light_cpu),
        ("3.2: memory load, peers turn CPU-heavy", memory),
    ):
        rows.append((name, k[int(CHANGE_S) - 2], k[-1]))
    s.say(
        "Capacity k (in units of the cluster's workload) of one node before and after 18 peers begin a CPU-intense job:"
    )
    s.table(("node", "before", "after"), rows)
    s.claim("scenario 3.1: conflicting usage lowers Capacity (figure 4.6)", rows[0][2] < rows[0][1])
    s.claim("scenario 3.2: complementary usage raises Capacity (figure 4.7)", rows[1][2] > rows[1][1])
    if not quick:
        plt = plot()
        figure, axes = plt.subplots(1, 2, figsize=(9, 3))
        for axis, (t, k), title in zip(
            axes, (light_cpu, memory), ("3.1: light CPU load", "3.2: memory load"), strict=True
        ):
            axis.plot(t, k, color="#0b6e4f")
            axis.axvline(CHANGE_S, color="#d1495b", ls="--", lw=1)
            axis.set(title=title, xlabel="time [s]", ylabel="Capacity k", ylim=(0, None))
        figure.tight_layout()
        figure.savefig(FIGURES / "scenarios.png")
        plt.close(figure)
        s.figure(
            "scenarios.png", "Capacity of one node; at the dashed line its peers begin pi-2000 (figures 4.6, 4.7)."
        )
    return s
