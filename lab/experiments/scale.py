"""100 to 5,000 nodes: does it stay the same, and how fast is the simulator?"""

import sys

from lab.experiments.common import Section
from lab.sim.engine import Setup, run
from lab.sim.schedulers.carico import Carico
from lab.sim.workload import PI, PodBatch

PODS_PER_NODE = 20
SIZES = ((100, 60.0), (1000, 60.0), (5000, 15.0))
"""Nodes and simulated seconds."""


def section(quick: bool) -> Section:
    s = Section("100 to 5,000 nodes", quick=quick)
    rows = []
    for nodes, until_s in SIZES[:1] if quick else SIZES:
        setup = Setup(nodes=nodes, binds_per_s=4.0 * nodes, warm_s=5.0)
        sys.stderr.write(f"{nodes} nodes\n")
        r = run(Carico(), [PodBatch(PI, PODS_PER_NODE * nodes)], 1000, setup, progress=True, until_s=until_s)
        sys.stderr.write(f"{nodes} nodes, {until_s:g} s simulated: took {r.wall_s:.0f} s\n")
        done, per_node = r.pct_s(), r.assigned.max(axis=1).max()
        writes = r.writes / nodes / ((until_s + setup.warm_s) / 60)
        overfill = r.overfill_s(7.97, from_s=min(20.0, until_s / 2))
        rows.append((nodes, until_s, float(done.mean()), len(done) / nodes, int(per_node), overfill, writes))
    s.say(
        "20 pi-2000 Pods per node at once, carico, for a fixed time (so a shorter one counts the quicker half of the "
        "Pods). Writes are those that pass the write throttle. The 5,000 nodes are simulated for 15 s only: 100,000 "
        "Pods, and a model per node that runs at 10 Hz. How long each took is printed while it runs, not part of the "
        "tables."
    )
    s.table(
        (
            "nodes",
            "simulated [s]",
            "mean PCT [s]",
            "Pods finished per node",
            "most on a node",
            "overfill [node s]",
            "writes per node and minute",
        ),
        rows,
    )
    s.claim("scale: no node overfills at any size", all(row[5] == 0 for row in rows))
    return s
