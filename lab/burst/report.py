"""lab/results/burst.md and lab/figures/burst.png: the table of lab.burst.sim, and who ran where when, for one seed."""

from pathlib import Path
from typing import Any

from lab.burst.sim import SYSTEMS, measures, simulate, text
from lab.burst.world import World

TARGETS = """Document: 3244 s at home (5.2), 1847 s naive (5.3), 1847 s with 3300 node-seconds (5.4).
The simulated `hcs` has that system's boot times; `naive` is paid from 0 to the last Job, `ours` until the last node is
deleted. Money counts from the order of a node (a booting node is paid too) and includes the control plane's own node.

**Ours, on demand, loses to naive here in money and turnaround; the makespans differ by less than their spread.** Naive
has a worker from the first second; ours orders one when Jobs wait, pays for 360 s of boot, and its Jobs wait meanwhile.
None of 24 settings of ours on demand changes that ([the grid](burst_grid.md), `python -m lab.burst.grid`). A cluster
that is made on demand pays where most hours need none.

**With a node that stays (`min_nodes = 1`, `unschedulable_s = 5`: `standing`) ours is cheaper than naive and its Jobs
wait less**, at a makespan that is not longer. It moves a Job after 5 s and not once a minute, and only where the Job
starts sooner: that is the turnaround. It takes the cheaper region: that is the money; at one price both cost the same.
Ours on demand is cheaper than the document's system, at a turnaround that is longer.

The workload: the document says that trainings arrive at regular and inferences at random intervals (chapter 5, figures
5.2 and 5.3). The number of Jobs, the periods and the durations are ours, fitted to its three run times.
"""


def write(folder: Path, table: dict[str, Any], seeds: list[int]) -> None:
    """Both files."""
    seed = seeds[0]
    runs = [measures(simulate("ours", one)) for one in seeds]
    within = sum(run["makespan_s"] <= 1900 and run["node_s"] <= 2000 for run in runs)
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results/burst.md").write_text(
        f"# Burst: 90 Jobs after the document's description, simulated\n\n"
        "`python -m lab.burst.sim --write`: mean ± standard deviation "
        f"of {len(seeds)} seeds.\n\n{text(table)}\n\n{TARGETS}\nThe fit (3 Jobs at once per worker, 200 and 61 s) is "
        "not unique: the runs with a cloud are bound by the last arrival.\n\nOf these seeds, "
        f"{within} keep both 1,900 s and 2,000 node-seconds; the bounds are for the means. The value of time (0.3 USD "
        "per hour and Job) was chosen on seeds 0 to 24.\n\n![seed "
        f"{seed}](../figures/burst.png)\n"
    )
    _figure(folder / "figures/burst.png", {name: simulate(name, seed) for name in SYSTEMS})


def _figure(path: Path, worlds: dict[str, World]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(worlds), 1, figsize=(9, 9), sharex=True, sharey=True, layout="constrained")
    for axis, (name, world) in zip(axes, worlds.items(), strict=True):
        now, home, cloud, waiting, queued, nodes = zip(*world.trace, strict=True)
        axis.stackplot(now, home, cloud, labels=["run at home", "run in the cloud"], colors=["#4477aa", "#66ccee"])
        axis.plot(now, [a + b for a, b in zip(waiting, queued, strict=True)], color="#ee6677", label="wait")
        axis.step(now, [3 * count for count in nodes], where="post", color="black", lw=1, label="places in the cloud")
        axis.set_title(name, loc="left", fontsize=10)
        axis.set_ylabel("Jobs")
    axes[0].legend(fontsize=8, ncols=4)
    axes[-1].set_xlabel("time [s]")
    figure.savefig(path, dpi=90)
    plt.close(figure)
