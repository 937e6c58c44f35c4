"""Different Pods at once on a real node: sleepers, one held back by its quota, busy loops, one with four threads, one
that holds memory, coming and going. How many more of each workload fit, beside the truth by construction.

    python -m lab.node.mixed [--quick] [--out lab/results/node]

The truth: a busy loop wants one core, four threads four, a container at a quota of a fifth of a core that much; the
channel ends at twice the cores. What the node uses without Pods is read before the first one comes. A workload is
judged from three seconds after a change, once one of its Pods has been there for as long as it takes to measure it.
"""

import argparse
import json
import os
import signal
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab.node.__main__ import HELD, PI, NodeLab, hold_memory
from lab.node.run import NodeRun
from lab.support.containerd import SLEEP, PrivateContainerd, missing

CORES = os.cpu_count() or 1
MEMORY_MB = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
HELD_MB = 512
MEMORY_LIMIT = 0.85
JUDGED_AFTER_S = 3.0
KNOWN_AFTER_S = 12.0
"""A new workload has shown itself after its first readings."""
FOUR = (
    "/bin/busybox",
    "sh",
    "-c",
    "for i in 1 2 3 4; do /bin/busybox awk 'BEGIN{while(1){x+=1}}' & done; /bin/busybox sleep 100000",
)


@dataclass(frozen=True)
class ContainerKind:
    """One kind of container: its command, and what one wants."""

    name: str
    command: tuple[str, ...]
    cores: float
    memory_mb: float = 1.0
    flags: tuple[str, ...] = ()

    def cost(self) -> tuple[float, float]:
        return self.cores / (2 * CORES), self.memory_mb / MEMORY_MB


WORKLOADS = {
    workload.name: workload
    for workload in (
        ContainerKind("sleeper", SLEEP, 0.0),
        ContainerKind("quota", PI, 0.2, flags=("--cpu-quota", "20000", "--cpu-period", "100000")),
        ContainerKind("loop", PI, 1.0),
        ContainerKind("four", FOUR, 4.0),
        ContainerKind("held", hold_memory(HELD_MB), 0.0, HELD_MB, HELD),
    )
}
JUDGED = ("quota", "loop", "held", "four")
"""Not the sleepers: a workload that only slept is learning for its first ten minutes, its number is the prior's."""
STEPS: tuple[tuple[str, int], ...] = (
    ("sleeper", 4),
    ("loop", 1),
    ("quota", 1),
    ("held", 1),
    ("loop", 1),
    ("loop", -1),
    ("held", 2),
    ("quota", 1),
    ("loop", 1),
    ("quota", -1),
    ("loop", -2),
    ("held", -2),
    ("four", 1),
    ("four", -1),
    ("loop", 2),
)


@dataclass
class MixedStep:
    """From when on which containers run."""

    t: float
    running: dict[str, int]


class Mixed:
    """One run: the steps, and what the agent answered meanwhile."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self.steps: list[MixedStep] = []
        self.run = NodeRun("mixed", "cpu", 1.0)

    def play(self, lab: NodeLab, out: Path) -> None:
        process = lab.agent(out / "node-mixed.trace.gz", "")
        stop = threading.Event()
        watching = lab.watch(self.run, stop)
        names: dict[str, list[str]] = {workload: [] for workload in WORKLOADS}
        try:
            time.sleep(self._hold_s)
            for number, (workload, count) in enumerate(STEPS, start=1):
                print(f"\rmixed: step {number} of {len(STEPS)}: {count:+d} {workload}      ", end="", flush=True)
                if count > 0:
                    chosen = WORKLOADS[workload]
                    names[workload] += lab.start(count, chosen.command, *chosen.flags, prefix=workload)
                else:
                    lab.stop(names[workload][count:])
                    del names[workload][count:]
                self.steps.append(MixedStep(time.monotonic(), {name: len(made) for name, made in names.items()}))
                time.sleep(self._hold_s)
            print()
        finally:
            stop.set()
            watching[0].join()
            process.send_signal(signal.SIGTERM)
            process.wait()

    def idle(self) -> np.ndarray:
        """Usage before the first container: the host's."""
        before = [s["usage"] for s in self.run.statuses if s["t"] < self.steps[0].t - 0.5]
        return np.array(
            [np.median([usage[name] for usage in before[len(before) // 2 :]]) for name in ("cpu", "memory")]
        )

    def rows(self) -> list[dict[str, Any]]:
        """Each judged workload at each moment: what was published and what was true."""
        host, found = self.idle(), []
        first_seen: dict[str, float] = {}
        for status in self.run.statuses:
            step = next((one for one in reversed(self.steps) if one.t <= status["t"]), None)
            if step is None:
                continue
            for name, count in step.running.items():
                if count:
                    first_seen.setdefault(name, status["t"])
            if status["t"] - step.t < JUDGED_AFTER_S:
                continue
            used = host + sum(count * np.array(WORKLOADS[name].cost()) for name, count in step.running.items())
            room = np.array([1.0, MEMORY_LIMIT]) - used
            workloads = {
                workload["workload"].rpartition("/")[2]: workload for workload in status.get("workloads") or ()
            }
            for name in JUDGED:
                if name in workloads and status["t"] - first_seen.get(name, np.inf) >= KNOWN_AFTER_S:
                    cost = np.array(WORKLOADS[name].cost())
                    truth = max(0.0, min(110.0 - status["pods"], float((room / np.maximum(cost, 1e-4)).min())))
                    found.append(
                        {"t": status["t"], "workload": name, "carico": workloads[name]["fits"], "truth": truth}
                    )
            found.append(
                {"t": status["t"], "workload": "node cpu", "carico": host_and_pods(status), "truth": min(1.0, used[0])}
            )
        return found


def host_and_pods(status: dict[str, Any]) -> float:
    """What the node uses of the cpu by its own account: 1 − room."""
    room = status.get("room") or {}
    return min(1.0, 1.0 - room["cpu"]) if room.get("cpu") is not None else float("nan")


def summary(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| workload | moments | mean truth | mean abs error | allowed | largest |", "|---|---|---|---|---|---|"]
    for name in (*JUDGED, "node cpu"):
        mine = [row for row in rows if row["kind"] == name and row["carico"] is not None]
        if not mine:
            lines.append(f"| {name} | 0 | | | | |")
            continue
        result, truth = np.array([row["carico"] for row in mine]), np.array([row["truth"] for row in mine])
        errors = np.abs(result - truth)
        allowed = 0.06 if name == "node cpu" else max(0.25, 0.05 * truth.mean())
        lines.append(
            f"| {name} | {len(mine)} | {truth.mean():.2f} | {errors.mean():.3f} | {allowed:.2f} | {errors.max():.2f} |"
        )
    return lines


def picture(mixed: Mixed, rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(JUDGED) + 1, 1, figsize=(11, 2.25 * (len(JUDGED) + 1)), sharex=True)
    began_t = mixed.run.statuses[0]["t"]
    for axis, name in zip(axes, (*JUDGED, "node cpu"), strict=True):
        mine = [row for row in rows if row["kind"] == name]
        t = np.array([row["t"] - began_t for row in mine])
        axis.plot(t, [row["truth"] for row in mine], ".", color="tab:red", markersize=2, label="truth")
        axis.plot(t, [row["carico"] for row in mine], ".", color="tab:blue", markersize=2, label="carico")
        axis.set_ylabel(name if name == "node cpu" else f"{name}: more fit")
        axis.set_ylim(bottom=0)
        for step in mixed.steps:
            axis.axvline(step.t - began_t, color="0.85", linewidth=0.8)
    axes[0].legend(loc="upper right")
    axes[0].set_title("Different Pods at once on a real node")
    axes[-1].set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter steps")
    parser.add_argument("--out", type=Path, default=Path("lab/out"))
    given = parser.parse_args()
    if reason := missing():
        print(f"lab.node.mixed: cannot run here: {reason}")
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    mixed = Mixed(12.0 if given.quick else 20.0)
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as containerd:
        mixed.play(NodeLab(containerd, given.out), given.out)
    rows = mixed.rows()
    host = mixed.idle()
    text = [
        "# Different Pods at once on a real node",
        "",
        f"{CORES} cores, {len(STEPS)} changes; the node without Pods used {host[0]:.1%} of the cpu channel.",
        "",
        "![carico and the truth](node-mixed.png)",
        "",
        *summary(rows),
        "",
    ]
    (given.out / "MIXED.md").write_text("\n".join(text))
    (given.out / "node-mixed.json").write_text(json.dumps([{**row, "t": round(row["t"], 1)} for row in rows[::10]]))
    picture(mixed, rows, given.out / "node-mixed.png")
    print("\n".join(text))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
