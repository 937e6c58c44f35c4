"""Pod-Capacity on simulated nodes that look like real ones, with and without a reading of each Pod.

python -m lab.sim.nodes [--seeds 3] [--old] [--before TREE] [--json] [--write] [--wide 30]

`--old` also runs the node-wide filter, which knows of Pods only how many there are. `--before` also runs
the core of another checkout (`git worktree add TREE COMMIT`) on the same histories. `--wide` runs that many nodes of
lab/sim/random_nodes.py in which everything may come together, instead of those of the claims. `--write` renews
lab/results/nodes.md or nodes_wide.md and its picture. What a node does and what the truth is: lab/sim/simnode.py. The
parameters of the core were chosen on seeds below 100; the seeds here start at 5000.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import carico_agent.core
from carico_agent.core import CapacityModel, Estimate, ModelConfig
from carico_agent.node.pipeline import HostUsage
from carico_agent.node.sampling import Usage
from lab.sim.random_nodes import random_node, wide_node
from lab.sim.simnode import HostSpec, NodeSpec, SimulatedNode, WorkloadSpec, system
from lab.support.code_hash import code_hash

AFTER_S = 90.0
FIRST_SEED = 5000
FIRST_WIDE = 100
"""Those before were used to find out what breaks, and how to mend it."""
MISSED_SHARE = 0.1
"""A 90 % interval may miss one in ten."""
RESULTS = Path(__file__).parents[1] / "results"

WEB = WorkloadSpec("shop/web", 0.3, 0.02)
LOOP = WorkloadSpec("pi", 1.0)
QUOTA = WorkloadSpec("quota", 0.2, throttled=True)


NODES = (
    NodeSpec("8 system Pods, one-core Pods", 4, (LOOP,), system(8)),
    NodeSpec("3 system Pods, 2 cores", 2, (WEB,), system(3)),
    NodeSpec("15 system Pods, 8 cores", 8, (WorkloadSpec("api", 0.6, 0.02),), system(15)),
    NodeSpec("two workloads at once", 4, (WEB, LOOP), system(5)),
    NodeSpec("two workloads, one of them memory", 8, (LOOP, WorkloadSpec("cache", 0.05, 0.08)), system(5)),
    NodeSpec(
        "three workloads, unequal",
        16,
        (replace(WEB, weight=3), LOOP, WorkloadSpec("db", 2.0, 0.05)),
        system(6),
        every_s=8,
    ),
    NodeSpec(
        "sleepers wake, others arrive", 4, (WEB,), ((WorkloadSpec("idle", 0.5, asleep_s=(60, 900)), 6), *system(4))
    ),
    NodeSpec(
        "Pods sleep before they work", 8, (replace(LOOP, asleep_s=(20, 300), life_s=(400, 700)),), system(5), every_s=40
    ),
    NodeSpec("host drifts", 4, (WEB,), system(5), HostSpec(drift=0.25)),
    NodeSpec("host steps", 4, (LOOP,), system(5), HostSpec(steps=0.15)),
    NodeSpec("host steps, 16 cores", 16, (replace(LOOP, cores=1.5),), system(5), HostSpec(steps=0.2)),
    NodeSpec("cron jobs on the host", 2, (WEB,), system(4), HostSpec(cron=0.25)),
    NodeSpec("boot noise", 4, (LOOP,), system(8), HostSpec(boot=0.5)),
    NodeSpec("ramps of 30 s", 8, (replace(LOOP, ramp_s=30),), system(5)),
    NodeSpec("ramps of 30 s, short lives", 8, (replace(WEB, ramp_s=30, life_s=(60, 120)),), system(5), every_s=5),
    NodeSpec("leaks", 4, (WorkloadSpec("leaky", 0.2, 0.03, leak_per_s=4e-5, life_s=(280, 320)),), system(5)),
    NodeSpec("I/O-bound", 4, (WorkloadSpec("copy", 0.1, 0.01, io=0.09, burst=0.2),), system(5), with_io=True),
    NodeSpec(
        "I/O not measured per Pod",
        4,
        (WorkloadSpec("log", 0.25, 0.01, io=0.02),),
        system(5),
        with_io=True,
        io_per_pod=False,
    ),
    NodeSpec("32 cores, small Pods", 32, (WorkloadSpec("rpc", 0.5, 0.004),), system(10), every_s=4),
    NodeSpec("2 cores, tiny Pods", 2, (WorkloadSpec("cron", 0.05, 0.01),), system(3), every_s=5),
    NodeSpec("short jobs", 8, (WorkloadSpec("job", 1.0, life_s=(15, 40)),), system(5), every_s=3),
    NodeSpec("throttled beside loops", 2, (WorkloadSpec("loop", 0.9),), ((QUOTA, 1), *system(3))),
    NodeSpec(
        "throttled beside loops, quotas not known",
        2,
        (WorkloadSpec("loop", 0.9),),
        ((QUOTA, 1), *system(3)),
        quotas_told=False,
    ),
    NodeSpec("bursty Pods", 8, (replace(LOOP, burst=0.3),), system(5)),
    NodeSpec("Pods differ by 30 %", 8, (replace(WEB, spread=0.3),), system(5), every_s=6),
    NodeSpec("overloaded", 4, (LOOP,), system(5), fill=1.0, every_s=6),
)


ALL_NODES = (*NODES, *(random_node(number) for number in range(1, 7)))


@dataclass(frozen=True)
class NodeScore:
    """How one estimator did on one node, over all seconds of all seeds."""

    node: str
    rms: float
    """RMS of error / max(2, truth)."""
    wrong: float
    """Share of seconds in which the number was trusted and off by more than a Pod and 25 %."""
    covered: float
    """Share of seconds whose interval holds what is coming: the number of the next arrivals that fit."""
    score: float
    """Interval score: (width + 20 × distance by which what is coming lies outside) / max(2, what is coming). Lower is
    better, and only sharp intervals that hold 90 % are low (Gneiting and Raftery 2007, equation 43, for 90 %)."""
    covered_truth: float
    """Share of seconds whose interval holds the truth, room over the mean cost."""
    trusted: float
    workloads_rms: float
    """RMS as above, for each workload that arrives."""
    base_outside: int
    """Seconds in which the node-wide filter believed a base outside [−1, 1]."""


def run(spec: NodeSpec, seeds: Iterable[int], with_pods: bool) -> NodeScore:
    rows = np.array([row for seed in seeds for row in _seconds(spec, seed, with_pods)])
    workloads = rows[:, 4][np.isfinite(rows[:, 4])]
    workloads_rms = float(np.sqrt(np.mean(workloads))) if len(workloads) else float("nan")
    rms = float(np.sqrt(np.mean(rows[:, 0] ** 2)))
    wrong, covered, trusted, score, covered_truth = (float(np.mean(rows[:, i])) for i in (1, 2, 3, 6, 7))
    return NodeScore(
        spec.name, rms, wrong, covered, score, covered_truth, trusted, workloads_rms, int(rows[:, 5].sum())
    )


def _seconds(spec: NodeSpec, seed: int, with_pods: bool) -> Iterable[tuple[float, ...]]:
    """Per second: relative error, trusted and wrong, covered, trusted, squared error over workloads, base outside,
    score, truth covered."""
    node = SimulatedNode(spec, seed)
    model = CapacityModel(node.resources, ModelConfig(cores=spec.cores))
    host, before_t = HostUsage(node.resources, spec.cores), 0.0
    for moment in node.moments():
        model.observe(moment.t, moment.usage, moment.pods)
        host.take(moment.t - before_t, Usage(moment.t, tuple(moment.usage), {"cpu_utilisation": moment.utilisation}))
        before_t = moment.t
        if with_pods and moment.measured is not None:
            model.observe_pods(moment.t, moment.measured.samples, host.usage(moment.measured))
        if moment.truth != moment.truth or moment.t < AFTER_S:
            continue
        e = model.estimate()
        error = min(e.pod_capacity, 1e4) - moment.truth
        trusted = e.mode != "learning"
        wrong = trusted and abs(error) > 1 and abs(error) > 0.25 * moment.truth
        outside = _outside(e, moment.coming)
        score = (min(e.high, 1e4) - e.low + 2 / MISSED_SHARE * outside) / max(2.0, moment.coming)
        covered_truth = _outside(e, moment.truth) <= 1e-9
        # cores of before 0.1 had another word for them (`--before`)
        fits = {workload.workload: workload.fits for workload in getattr(e, "workloads", ())}
        of_workloads = [((fits[name] - x) / max(2.0, x)) ** 2 for name, x in moment.truths.items() if name in fits]
        squared = float(np.mean(of_workloads)) if of_workloads else float("nan")
        error /= max(2.0, moment.truth)
        yield error, wrong, outside <= 1e-9, trusted, squared, _bases_outside(model), score, covered_truth


def _outside(estimate: Estimate, truth: float) -> float:
    """By how much the truth lies outside the interval."""
    return max(0.0, estimate.low - truth, truth - estimate.high)


def _bases_outside(model: CapacityModel) -> bool:
    return any(not -1 <= channel[0][0] <= 1 for channel in model.state()["estimator"]["channels"])


def summary(scores: list[NodeScore]) -> dict[str, float]:
    """Over all nodes."""
    rms, wrong, covered, score = (
        np.array([getattr(s, key) for s in scores]) for key in ("rms", "wrong", "covered", "score")
    )
    return {
        "nodes": len(scores),
        "rms_median": float(np.median(rms)),
        "rms_worst": float(rms.max()),
        "wrong_mean": float(wrong.mean()),
        "wrong_worst": float(wrong.max()),
        "covered_mean": float(covered.mean()),
        "covered_worst": float(covered.min()),
        "score_mean": float(score.mean()),
        "base_outside": float(sum(s.base_outside for s in scores)),
    }


def table(new: list[NodeScore], old: list[NodeScore], before: list[NodeScore]) -> str:
    """One row per node; the columns of another core and of the node-wide filter where they were run."""
    head = "| node | rms | trusted and wrong | interval holds | score | truth held | trusted | workloads rms |"
    head += " rms, before | holds | score |" if before else ""
    lines = [head + (" rms, node-wide | wrong | holds | trusted |" if old else "")]
    lines.append("|" + "---|" * (lines[0].count("|") - 1))
    for i, s in enumerate(new):
        line = f"| {s.node} | {s.rms:.3f} | {s.wrong:.1%} | {s.covered:.1%} | {s.score:.2f} | {s.covered_truth:.1%} |"
        line += f" {s.trusted:.0%} | {s.workloads_rms:.3f} |"
        if before:
            line += f" {before[i].rms:.3f} | {before[i].covered:.1%} | {before[i].score:.2f} |"
        if old:
            o = old[i]
            line += f" {o.rms:.2f} | {o.wrong:.1%} | {o.covered:.1%} | {o.trusted:.0%} |"
        lines.append(line)
    return "\n".join(lines)


def summaries(new: list[NodeScore], old: list[NodeScore], before: list[NodeScore]) -> list[str]:
    """A line for each of them, and how the intervals compare."""
    lines = [
        f"{name}: " + ", ".join(f"{key} {value:.3f}" for key, value in summary(scores).items())
        for name, scores in (("every Pod measured", new), ("the same before", before), ("node-wide", old))
        if scores
    ]
    if before:
        ratios = [s.score / b.score for s, b in zip(new, before, strict=True)]
        mean = summary(new)["score_mean"] / summary(before)["score_mean"]
        lines.append(f"interval score, new / before: mean over nodes {mean:.2f}, median node {np.median(ratios):.2f}")
    return lines


def page(new: list[NodeScore], old: list[NodeScore], before: list[NodeScore], seeds: range, wide: int) -> str:
    """lab/results/nodes.md or nodes_wide.md."""
    lines = [
        "# Pod-Capacity on simulated nodes " + ("that mix everything" if wide else "that look like real ones"),
        "",
        f"`python -m lab.sim.nodes --seeds {len(seeds)} --first-seed {seeds[0]} --write"
        + (" --old" if old else "")
        + (" --before TREE" if before else "")
        + (f" --wide {wide}`," if wide else "`,")
        + f" code of the core {core_hash()}.",
        "What a node does and the truth: `lab/sim/simnode.py`.",
        "rms is error / max(2, truth); wrong is trusted and off by more than a Pod and 25 %.",
        "Interval holds: how many of the next arrivals fit; score: (width + 20 × distance outside) / max(2, that).",
        "Node-wide: the same model, which knows only how many Pods there are." if old else "",
        "Before: the core of commit 7225639, whose interval asked what if only the cheapest workload came."
        if before
        else "",
        "Nodes: `wide_node` of `lab/sim/random_nodes.py`; where they break is not mended on them." if wide else "",
        "",
        table(new, old, before),
        "",
    ]
    for line in summaries(new, old, before):
        lines += [line, ""]
    return "\n".join([*lines, f"![errors per node]({_name(wide)}.png)", ""] if old else lines)


def core_hash() -> str:
    """Of the core's code that was run, without comments and docstrings: results of other code say nothing about it."""
    return code_hash(sorted(Path(carico_agent.core.__file__).parent.rglob("*.py")))


def run_before(tree: Path, arguments: list[str]) -> list[NodeScore]:
    """The same histories and truths through the core of another `tree`, in a process of its own."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "carico_agent").symlink_to((tree / "carico_agent").resolve())
        here = Path(__file__).parents[2]
        environment = os.environ | {"PYTHONPATH": f"{folder}:{here}"}
        command = [sys.executable, "-P", "-m", "lab.sim.nodes", "--json", *arguments]
        found = subprocess.run(command, env=environment, cwd=folder, check=True, stdout=subprocess.PIPE)
    return [NodeScore(**score) for score in json.loads(found.stdout)["new"]]


def _name(wide: int) -> str:
    return "nodes_wide" if wide else "nodes"


def draw(new: list[NodeScore], old: list[NodeScore], path: Path) -> None:
    """Relative error of each node, with and without measured Pods."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.26 * len(new) + 1))
    rows = np.arange(len(new))
    axes.barh(rows - 0.2, [s.rms for s in old], 0.4, label="node-wide filter", color="#bbbbbb")
    axes.barh(rows + 0.2, [s.rms for s in new], 0.4, label="every Pod measured", color="#1f77b4")
    axes.axvline(0.1, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(rows, [s.node for s in new], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("RMS of error / max(2, truth)")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--old", action="store_true", help="also without readings of each Pod")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="nodes at a time")
    parser.add_argument("--only", default="", help="nodes whose name contains this")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--wide", type=int, default=0, metavar="N", help="N nodes in which everything may come together"
    )
    parser.add_argument("--first-wide", type=int, default=FIRST_WIDE, help="the first of them")
    parser.add_argument("--before", type=Path, metavar="TREE", help="also with the core of another checkout")
    parser.add_argument(
        "--write", action="store_true", help="renew the page in lab/results, and the picture with --old"
    )
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    nodes = [wide_node(args.first_wide + number) for number in range(args.wide)] or ALL_NODES
    specs = [spec for spec in nodes if args.only in spec.name]
    with ProcessPoolExecutor(args.jobs) as pool:
        tasks = [
            [pool.submit(run, spec, seeds, with_pods) for spec in specs] for with_pods in (True, False)[: 1 + args.old]
        ]
        new, *others = ([task.result() for task in one] for one in tasks)
    old = others[0] if others else []
    before: list[NodeScore] = []
    if args.before:
        same = {"seeds": args.seeds, "first-seed": args.first_seed, "jobs": args.jobs, "wide": args.wide}
        same |= {"first-wide": args.first_wide}
        before = run_before(args.before, [f"--{key}={value}" for key, value in same.items()] + [f"--only={args.only}"])
    if args.write:
        (RESULTS / f"{_name(args.wide)}.md").write_text(page(new, old, before, seeds, args.wide))
        if old:
            draw(new, old, RESULTS / f"{_name(args.wide)}.png")
    if args.json:
        print(json.dumps({name: [asdict(s) for s in scores] for name, scores in (("new", new), ("old", old))}))
        return
    print(table(new, old, before))
    for line in summaries(new, old, before):
        print(f"\n{line}")


if __name__ == "__main__":
    main()
