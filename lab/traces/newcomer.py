"""A workload comes to a node that never ran it: with the cluster's profile, and without.

python -m lab.traces.newcomer --data FOLDER

Each node has run all of its VMs or jobs but one for a week; that one has run elsewhere. It arrives: what will all use
together at most in the next 24 hours? Without the federation the node takes the newcomer to use at all times what it
uses now; with it, its day as other nodes know it, quantised as it travels.
"""

import argparse
from pathlib import Path

import numpy as np

from carico_agent.core import Outlook, PodSample
from carico_agent.core.profile import Profile
from carico_agent.federation.profiles import decoded, encoded
from lab.traces.data import SETS, Array, Missing, TraceSet, synthetic
from lab.traces.run import SLOT_S, pinball

WEEK, DAY = 7 * 288, 288
MOMENTS = (WEEK, WEEK + 72, WEEK + 144, WEEK + 216)
"""The newcomer arrives at four times of a day."""


def travelled(profile: Profile) -> Profile:
    """As another node receives it."""
    return Profile(decoded(encoded(profile.day.astype(float)), len(profile.day)), profile.median_s, profile.p90_s)


def questions(traces: TraceSet, rows: Array) -> list[tuple[float, float, float]]:
    """Per moment: the truth, and what the node says without and with the cluster's profile."""
    node = float(traces.limit[rows].sum())
    usage = np.asarray(traces.usage[rows], float) / node
    found = []
    here, there = Outlook(("cpu",)), Outlook(("cpu",))
    for slot in range(max(MOMENTS) + 1):
        t, now = traces.start_t + slot * SLOT_S, usage[:, slot]
        pods = [PodSample(f"vm-{i}", f"vm-{i}", (float(x),)) for i, x in enumerate(now) if x == x]
        old, new = [pod for pod in pods if pod.uid != "vm-0"], [pod for pod in pods if pod.uid == "vm-0"]
        here.observe(t, old)
        there.observe(t, new)
        if slot not in MOMENTS or not new:
            continue
        profile = there.profile("vm-0")
        running = ~np.isnan(now)
        truth = float(np.nansum(usage[running, slot : slot + DAY + 1], axis=0).max())
        here.learn_elsewhere({})
        without = here.peak(86400.0)[0] + float(now[0])
        if profile is not None:
            here.learn_elsewhere({"vm-0": travelled(profile)})
        found.append((truth, without, here.peak(86400.0, added={"vm-0": 1.0})[0]))
    return found


def report(name: str, traces: TraceSet, size: int, most: int) -> str:
    asked = np.array([row for rows in list(traces.nodes(size, 31))[:most] for row in questions(traces, rows)])
    cells = []
    for column in (1, 2):
        loss = pinball(asked[:, 0], asked[:, column], 0.95).mean()
        short = (asked[:, 0] - asked[:, column] > 0.05).mean()
        cells.append(f"{1000 * loss:.1f} ({short:.1%} short by > 5 %)")
    return f"| {name} | {len(asked)} | {cells[0]} | {cells[1]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the public sets; without it, a set made by code")
    parser.add_argument("--size", type=int, default=5, help="VMs or tasks per node: few, so that one matters")
    parser.add_argument("--most", type=int, default=20, help="nodes per set")
    args = parser.parse_args()
    print("| set | cases | without federation | with |\n|---|---|---|---|")
    if args.data is None:
        print(report("synthetic", synthetic(count=40), args.size, args.most))
        return
    for name in ("bitbrains-08", "google-task", "google-job"):
        try:
            print(report(name, SETS[name](args.data), args.size, args.most))
        except Missing as why:
            print(f"{name}: skipped, {why}")


if __name__ == "__main__":
    main()
