"""Two commits of the agent beside each other, and a C loop, in the same window. Prints a table; asserts nothing.

    python -m lab.bench.beside OLD_TREE [none] [pods] [working] [--seconds 300] [--write]

none:    no Pods, no containerd.
pods:    a containerd with 110 Pods that sleep; beside it the same on a node of a cluster (a real API server, TLS).
working: 110 Pods that all work a little every second.

Why beside each other: the CPU time of a process that wakes ten times a second depends on how cold its caches are, so on
what else the machine does. Both agents and the C loop meet the same machine; the ratio is what can be compared.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab.bench.lateness import between, quantile_ms, took
from lab.bench.pods import SH, WORK
from lab.bench.process import OwnAgent, agent, cpu_s, memory_mb
from lab.bench.whole import c_loop
from lab.support import TREE
from lab.support.containerd import PrivateContainerd
from lab.support.control_plane import running as control_plane

RESULTS = TREE / "lab/results/beside.md"
PODS = 110
WARM_S = 75.0
"""Files of all Pods are opened, and each container's history has its first minute."""
HEAD = "| what | commit | C loop [% of a core] | agent | × C loop | wanted | RSS [MB] | tick p50, p99 ≤ [ms] |"
WANTED = {"no Pods": 2.5, "110 Pods": 4.0, "110 Pods that work": 6.0, "110 Pods, Kubernetes": 4.5}
STAGES = ("publish", "model", "read", "measure Pods")


def commit(tree: Path) -> str:
    found = subprocess.run(["git", "-C", tree, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return found.stdout.strip() or "?"


def measured(agents: Sequence[tuple[str, str, OwnAgent]], floor: int, seconds: float) -> Iterator[str]:
    """A row for each (what, commit, agent), all in the same window."""
    ticks = [took(own) for _, _, own in agents]
    before, floor_s, started_s = [cpu_s(own.pid) for _, _, own in agents], cpu_s(floor), time.monotonic()
    time.sleep(seconds)
    elapsed_s, used_s = time.monotonic() - started_s, [cpu_s(own.pid) for _, _, own in agents]
    floor_s = cpu_s(floor) - floor_s
    for (what, name, own), began_s, ended_s, ticked in zip(agents, before, used_s, ticks, strict=True):
        took_ms = between(ticked, took(own))
        cost_s, resident = ended_s - began_s, memory_mb(own.pid)["Rss"]
        percent = f"{100 * floor_s / elapsed_s:.3f} | {100 * cost_s / elapsed_s:.3f} | {cost_s / floor_s:.2f}"
        quantiles = f"{quantile_ms(took_ms, 0.5):g}, {quantile_ms(took_ms, 0.99):g}"
        yield f"| {what} | {name} | {percent} | ≤ {WANTED[what]:g} | {resident:.1f} | {quantiles} |"
        stages = own.about_itself()["stages"]
        told = [f"{stage} {stages[stage]['mean_us']:.0f}" for stage in STAGES if stage in stages]
        print(f"    {what}, {name}: mean per run [µs]: {', '.join(told)}", flush=True)


def without_pods(trees: Sequence[Path], seconds: float) -> Iterator[str]:
    with ExitStack() as stack:
        floor = stack.enter_context(c_loop())
        agents = [("no Pods", commit(tree), stack.enter_context(agent(tree=tree))) for tree in trees]
        time.sleep(10.0)
        yield from measured(agents, floor, seconds)


@contextmanager
def containers(work: bool) -> Iterator[str]:
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="cb-", dir="/tmp"))) as containerd:
        for number in range(PODS):
            containerd.run(f"pod{number}", *((*SH, WORK) if work else ()))
        yield containerd.socket


def with_pods(trees: Sequence[Path], seconds: float) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="carico-bench-") as folder, ExitStack() as stack:
        plane = stack.enter_context(contextmanager(control_plane)(Path(folder)))
        plane.apply(*sorted((TREE / "deploy/base").glob("*.yaml")))
        socket, floor = stack.enter_context(containers(work=False)), stack.enter_context(c_loop())
        kubeconfig, agents = str(plane.kubeconfig("agent-token")), []
        for number, tree in enumerate(trees):
            plane.admin.add_node(f"bench{number}")
            own = agent("--containerd", socket, tree=tree)
            agents.append((f"{PODS} Pods", commit(tree), stack.enter_context(own)))
            flags = ("--kubeconfig", kubeconfig, "--node", f"bench{number}")
            own = agent("--containerd", socket, *flags, tree=tree)
            agents.append((f"{PODS} Pods, Kubernetes", commit(tree), stack.enter_context(own)))
        time.sleep(WARM_S)
        yield from measured(agents, floor, seconds)


def working(trees: Sequence[Path], seconds: float) -> Iterator[str]:
    with ExitStack() as stack:
        socket, floor = stack.enter_context(containers(work=True)), stack.enter_context(c_loop())
        agents = []
        for tree in trees:
            own = stack.enter_context(agent("--containerd", socket, tree=tree))
            agents.append((f"{PODS} Pods that work", commit(tree), own))
        time.sleep(WARM_S)
        yield from measured(agents, floor, seconds)


CASES = {"none": without_pods, "pods": with_pods, "working": working}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.bench.beside")
    parser.add_argument("old", type=Path, help="a work tree of the other commit")
    parser.add_argument("cases", nargs="*", choices=[*CASES, []])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--write", action="store_true", help=f"keep the table in {RESULTS.relative_to(TREE)}")
    given = parser.parse_args()
    machine = f"{os.cpu_count()} cores, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before"
    lines = [
        f"{time.strftime('%Y-%m-%d %H:%M')}, {machine}, windows of {given.seconds:.0f} s",
        "",
        HEAD,
        "|---" * 8 + "|",
    ]
    print(*lines, sep="\n", flush=True)
    for case in given.cases or CASES:
        for line in CASES[case]((given.old, TREE), given.seconds):
            print(line, flush=True)
            lines.append(line)
    if given.write:
        text = RESULTS.read_text() if RESULTS.exists() else "# Two commits beside each other (`lab/bench/beside.py`)\n"
        RESULTS.write_text(text + "\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
