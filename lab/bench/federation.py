"""How many nodes one aggregator serves: `python -m lab.bench.federation [--nodes N …] [--write]`.

The aggregator is a real process. Every node has its own mTLS connection and certificate, its contributions are those
of a real model under load that wanders, and it sends when the agent would: on change, and on a heartbeat. Columns:

cpu      of the aggregator, share of one core, over the counted seconds
kB/node  resident memory above that of the idle aggregator, per node
answer   from when a node should have sent to its answer: p50, p99 [ms]; "late" is the p99 of the load generator's own
         lateness, which is part of it, "on time" the p99 of those answers whose node sent within 5 ms of when it
         should, and "load cpu" what the load generator takes
back     after the aggregator was killed and started again: until all nodes are in its view [s]

`--estimate` is what exchanging on change costs a node's estimate, `--methods` compares the exact mean with
pairwise merges.
"""

import argparse
import asyncio
import os
import platform
import resource

from lab.bench.federation_estimate import compare
from lab.bench.federation_methods import compare_methods
from lab.bench.federation_run import HEAD, measure
from lab.support import TREE

RESULTS = TREE / "lab/results/federation.md"
TARGETS = "targets at 5,000 nodes: cpu ≤ 60 %, ≤ 110 kB/node, p99 ≤ 50 ms, estimate ≤ 0.05 Pods"
SHARED = """The aggregator has one CPU for itself, all nodes together have the others. Where "late" grows, it is the
nodes that have too little of them, and the times of answers are their own."""


def estimate_difference(nodes: int, seconds: int) -> str:
    found = compare(nodes, seconds)
    return (
        f"Estimate, {found.nodes} nodes over {found.seconds} s, one in five never ran a Pod: on change against every "
        f"second differs by {found.max_pods:.3f} Pods at most, {found.p99_pods:.3f} at p99, "
        f"{found.mean_pods:.4f} in the mean; "
        f"{found.exchanges_per_s:.2f} exchanges and {found.pushes_per_s:.2f} pushed views per node and second."
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[600], help="numbers of nodes, one run each")
    parser.add_argument("--seconds", type=int, default=20, help="counted seconds per run")
    parser.add_argument("--estimate", action="store_true", help="only what exchanging on change costs the estimate")
    parser.add_argument("--methods", action="store_true", help="only the comparison of methods")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(TREE)}")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    parts = [
        f"# Federation: one aggregator, one mTLS connection per node\n\n`python -m lab.bench.federation`; {TARGETS}."
    ]
    if not (given.estimate or given.methods):
        print(HEAD, flush=True)
        rows = []
        for nodes in given.nodes:
            rows.append((await measure(nodes, given.seconds)).line())
            print(rows[-1], flush=True)
        load = f"load average {os.getloadavg()[0]:.1f} at the end"
        machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {load}"
        parts.append("\n".join([HEAD, *rows]) + f"\n\nMeasured on {machine}. {SHARED}")
    if given.estimate or not given.methods:
        for nodes, seconds in ((40, 180), (400, 120)):
            parts.append(estimate_difference(nodes, seconds))
            print(parts[-1], flush=True)
    if given.methods or not given.estimate:
        parts.append(compare_methods())
        print(parts[-1], flush=True)
    if given.write:
        RESULTS.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
