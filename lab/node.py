"""Pod-Capacity on a real node: containers under a private containerd, the real agent, the number against the truth.

    python -m lab.node [--quick] [--out lab/out]

Bursts of 1 … 2×cores+2 containers that compute pi, twice, with pauses; then containers that hold memory; then one
that is throttled to a tenth of a core. Writes the trace, a picture of each run, and a table.

Truth is what the whole run shows afterwards: a straight line through the mean usage of each number of Pods (as long
as the channel is not saturated) says how many Pods fit until it reaches its limit.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from carico_agent.client import AgentClient, AgentError, AgentUnavailable
from lab.support.containerd import PrivateContainerd, missing

PI = ("/bin/busybox", "awk", "BEGIN{while(1){s=0;for(i=0;i<1e6;i++)s+=(i%2?-4:4)/(2*i+1)}}")
SETTLED_S = 2.0
SATURATED = 0.97
PARTS = ("pi", "memory", "throttled")


def hold_memory(size_mb: int) -> tuple[str, ...]:
    """Fill a file in memory, and then nothing but to keep it."""
    return (
        "/bin/busybox",
        "sh",
        "-c",
        f"/bin/busybox dd if=/dev/zero of=/held/x bs=1M count={size_mb}; /bin/busybox sleep 100000",
    )


HELD = ("--mount", "type=tmpfs,src=tmpfs,dst=/held,options=rw:size=90%")


@dataclass
class Run:
    """What the agent said, ten times a second or whenever it changed its mind."""

    name: str
    resource: str
    limit: float
    statuses: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def column(self, *path: str) -> np.ndarray:
        def dig(value: Any) -> float:
            for key in path:
                value = value[key]
            return np.nan if value is None else float(value)

        return np.array([dig(status) for status in self.statuses])

    @property
    def t(self) -> np.ndarray:
        return self.column("t") - self.statuses[0]["t"]

    def settled(self) -> np.ndarray:
        """True from two seconds after each change of the number of Pods."""
        pods, t = self.column("pods"), self.t
        changed_t = np.maximum.accumulate(np.where(np.diff(pods, prepend=pods[0]) != 0, t, -np.inf))
        return t - changed_t >= SETTLED_S

    def after_first_burst(self) -> np.ndarray:
        pods = self.column("pods")
        ended = np.flatnonzero((pods[:-1] > 0) & (pods[1:] == 0))
        return np.arange(len(pods)) > (ended[0] if len(ended) else len(pods))

    def truth(self) -> tuple[float, float]:
        """Usage without Pods and per Pod, by a straight line through the settled means."""
        pods, usage, settled = self.column("pods"), self.column("usage", self.resource), self.settled()
        levels = sorted({int(n) for n in pods[settled]})
        means = np.array([usage[settled & (pods == n)].mean() for n in levels])
        free = means < SATURATED
        cost, base = np.polyfit(np.array(levels)[free], means[free], 1)
        return float(base), float(cost)

    def true_capacity(self) -> np.ndarray:
        base, cost = self.truth()
        return np.maximum(0.0, (self.limit - base - cost * self.column("pods")) / cost)

    def errors(self) -> np.ndarray:
        counted = self.settled() & self.after_first_burst()
        return (self.column("pod_capacity") - self.true_capacity())[counted]


class Lab:
    """One private containerd and one agent."""

    def __init__(self, containerd: PrivateContainerd, out: Path) -> None:
        self._containerd, self._out, self._serial = containerd, out, 0
        self._socket = str(containerd.folder / "agent.sock")

    def agent(self, trace: Path, config: str) -> "subprocess.Popen[bytes]":
        file = self._containerd.folder / "agent.toml"
        file.write_text(config)
        command = [
            sys.executable,
            "-m",
            "carico_agent",
            "agent",
            "--quiet",
            "--socket",
            self._socket,
            "--config",
            str(file),
            "--containerd",
            self._containerd.socket,
            "--record",
            str(trace),
            "--node",
            "lab",
        ]
        # every run begins with nothing learned
        environment = {**os.environ, "STATE_DIRECTORY": str(self._containerd.folder / f"learned-{trace.name}")}
        process = subprocess.Popen(command, env=environment)
        for _ in range(400):
            try:
                if "containerd" in AgentClient(self._socket).status()["runtime"]:
                    return process
            except (AgentUnavailable, AgentError):
                pass
            time.sleep(0.05)
        raise RuntimeError("the agent did not find the private containerd")

    def start(self, count: int, command: Sequence[str], *flags: str, prefix: str = "pod") -> list[str]:
        names = [f"{prefix}-{self._serial + i}" for i in range(count)]
        self._serial += count
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: self._containerd.run(name, *command, flags=flags), names))
        return names

    def stop(self, names: Sequence[str]) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._containerd.remove, names))

    def watch(self, run: Run, stop: threading.Event) -> list[threading.Thread]:
        """Write down what the agent says, until told to stop."""

        def statuses() -> None:
            asked = AgentClient(self._socket)
            while not stop.wait(0.1):
                run.statuses.append({**asked.status(), "t": time.monotonic()})

        def events() -> None:
            try:
                for event in AgentClient(self._socket).lines("/v1/events", timeout_s=None):
                    run.events.append(event)
            except AgentUnavailable:
                return

        threads = [threading.Thread(target=call, daemon=True) for call in (statuses, events)]
        for thread in threads:
            thread.start()
        return threads

    def bursts(
        self,
        run: Run,
        sizes: Sequence[int],
        command: Sequence[str],
        hold_s: float,
        pause_s: float,
        flags: Sequence[str] = (),
        config: str = "",
    ) -> Path:
        """Bursts of containers under the eyes of the agent; returns the trace."""
        trace = self._out / f"node-{run.name}.trace.gz"
        process, stop = self.agent(trace, config), threading.Event()
        watching = self.watch(run, stop)
        try:
            time.sleep(pause_s)
            for number, size in enumerate(sizes, start=1):
                print(f"\r{run.name}: burst {number} of {len(sizes)}, {size} containers   ", end="", flush=True)
                names = self.start(size, command, *flags)
                time.sleep(hold_s)
                self.stop(names)
                time.sleep(pause_s)
            print("\r" + " " * 60 + "\r", end="")
        finally:
            stop.set()
            watching[0].join()
            process.send_signal(signal.SIGTERM)
            process.wait()
        return trace

    def throttled(self, seconds: float) -> dict[str, float]:
        """An idle node, then one container that its own quota holds at a tenth of a core. It does not count as a
        Pod, so the cost stays what the prior says and only the reading of usage is compared."""
        run = Run("throttled", "cpu", 1.0)
        config = '[pods]\nskip_names = ["quota-*"]\n'
        process, stop = self.agent(self._out / "node-throttled.trace.gz", config), threading.Event()
        watching = self.watch(run, stop)
        try:
            time.sleep(seconds)
            before = len(run.statuses)
            names = self.start(1, PI, "--cpu-quota", "10000", "--cpu-period", "100000", prefix="quota")
            time.sleep(seconds)
            self.stop(names)
        finally:
            stop.set()
            watching[0].join()
            process.send_signal(signal.SIGTERM)
            process.wait()
        cost = run.column("cost_vector", "cpu")
        corrected, raw = run.column("pod_capacity"), (1 - run.column("signals", "cpu_raw")) / cost
        quiet, busy = slice(max(0, before - 30), before), slice(-max(10, (len(cost) - before) // 2) - 10, -10)
        return {
            "idle": float(corrected[quiet].mean()),
            "corrected": float(corrected[busy].mean()),
            "raw": float(raw[busy].mean()),
            "pressure_raw": float(run.column("signals", "cpu_pressure_raw")[busy].mean()),
        }


def lead_ms(run: Run) -> list[float]:
    """How long the first event of each burst came before usage rose by half a Pod [ms]."""
    offset_s = time.time() - time.monotonic()
    base, cost = run.truth()
    leads, previous_t = [], -np.inf
    when = run.column("t")
    raw = run.column("signals", f"{run.resource}_raw" if run.resource == "cpu" else run.resource)
    for event in run.events:
        t = _seconds(event["time"]) - offset_s
        if event["topic"] == "/containers/create" and t - previous_t > 3.0:
            after = np.flatnonzero((when > t) & (raw > base + cost / 2))
            if len(after):
                leads.append(1e3 * (when[after[0]] - t))
        previous_t = t
    return leads


def _seconds(rfc3339: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).timestamp()


def picture(run: Run, path: Path) -> None:
    """Usage, Pods, and Pod-Capacity with its interval beside the truth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    t, pods = run.t, run.column("pods")
    figure, (top, middle, bottom) = plt.subplots(3, 1, figsize=(11, 7.5), sharex=True, height_ratios=(2, 1, 3))
    for name in run.statuses[0]["usage"]:
        top.plot(t, run.column("usage", name), label=name, linewidth=1)
    top.axhline(run.limit, color="0.6", linestyle=":", linewidth=1)
    top.set(ylabel="usage", ylim=(0, 1.05), title=f"{run.name}: a real node, real containers")
    top.legend(loc="upper left", ncols=3)
    middle.step(t, pods, where="post", color="0.3")
    middle.set_ylabel("Pods")
    truth = run.true_capacity()
    most = 1.6 * truth.max()
    bottom.fill_between(
        t,
        run.column("low"),
        np.minimum(np.nan_to_num(run.column("high"), nan=most), most),
        color="tab:blue",
        alpha=0.2,
        label="interval",
    )
    bottom.plot(t, run.column("pod_capacity"), color="tab:blue", linewidth=1.4, label="Pod-Capacity")
    bottom.step(t, truth, where="post", color="tab:red", linewidth=1, label="truth")
    bottom.set(ylabel="Pods that still fit", xlabel="seconds", ylim=(0, most))
    bottom.legend(loc="upper right", ncols=3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def table(run: Run) -> list[str]:
    """Per number of Pods: usage, what was said, what was true."""
    pods, counted = run.column("pods"), run.settled() & run.after_first_burst()
    usage, result, true = run.column("usage", run.resource), run.column("pod_capacity"), run.true_capacity()
    lines = [f"| Pods | {run.resource} usage | Pod-Capacity said | true | mean abs error |", "|---|---|---|---|---|"]
    for n in sorted({int(n) for n in pods[counted]}):
        at = counted & (pods == n)
        error = np.abs(result[at] - true[at]).mean()
        lines.append(
            f"| {n} | {usage[at].mean():.3f} | {result[at].mean():.2f} | {true[at].mean():.2f} | {error:.2f} |"
        )
    errors, (base, cost) = run.errors(), run.truth()
    inside = ((run.column("low") <= true) & (true <= np.nan_to_num(run.column("high"), nan=np.inf)))[counted].mean()
    summary = (
        f"{run.name}: mean absolute error {np.abs(errors).mean():.2f} Pods, largest {np.abs(errors).max():.2f}, "
        f"truth inside the interval {inside:.0%}; a Pod takes {cost:.3f}, the idle node {base:.3f}; "
        f"{(run.limit - base) / cost:.2f} fit in all"
    )
    return [*lines, "", summary, ""]


def section(run: Run, out: Path) -> list[str]:
    picture(run, out / f"node-{run.name}.png")
    return [f"## {run.name}", "", f"![{run.name}](node-{run.name}.png)", "", *table(run)]


def events_section(run: Run) -> list[str]:
    leads = lead_ms(run)
    return [
        "## Events and the spike",
        "",
        f"The first container event came before usage rose in all {len(leads)} "
        f"bursts: by {np.median(leads):.0f} ms (median), {min(leads):.0f} ms at least.",
        "",
    ]


def throttled_section(quota: dict[str, float]) -> list[str]:
    return [
        "## A throttled container is not contention",
        "",
        f"Idle node: Pod-Capacity {quota['idle']:.2f}. With one container at its quota of a tenth of a core "
        f"(raw cpu pressure {quota['pressure_raw']:.2f}): {quota['corrected']:.2f} "
        f"({quota['corrected'] / quota['idle'] - 1:+.1%}); the paper's metric would say {quota['raw']:.2f} "
        f"({quota['raw'] / quota['idle'] - 1:+.1%}).",
        "",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter bursts")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--out", type=Path, default=Path("lab/out"))
    given = parser.parse_args()
    if reason := missing():
        print(f"lab.node: cannot run here: {reason}")
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    cores = os.cpu_count() or 1
    rng = np.random.default_rng(7)
    most = 2 * cores + 2
    sizes = [*range(1, most + 1), *rng.permutation(np.arange(1, most + 1)).tolist()]
    hold_s, pause_s = (5.0, 4.0) if given.quick else (8.0, 6.0)
    sizes = sizes[:: 2 if given.quick else 1]
    memory_sizes = [2, 5, 3] if given.quick else [2, 5, 1, 7, 3, 6]
    total_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    limit = 0.25  # of memory: so that small Pods, filled in a moment, run out of it before anything else
    report = ["# Pod-Capacity on a real node", "", f"{cores} cores, containers under containerd.", ""]
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as containerd:
        lab = Lab(containerd, given.out)
        if "pi" in given.only:
            pi = Run("pi", "cpu", 1.0)
            lab.bursts(pi, sizes, PI, hold_s, pause_s)
            report += [*section(pi, given.out), *events_section(pi)]
        if "memory" in given.only:
            memory = Run("memory", "memory", limit)
            lab.bursts(
                memory,
                memory_sizes,
                hold_memory(total_mb // 64),
                hold_s,
                pause_s,
                HELD,
                f"[model]\nlimits = {{ cpu = 1.0, memory = {limit} }}\n",
            )
            report += section(memory, given.out)
        if "throttled" in given.only:
            report += throttled_section(lab.throttled(hold_s + pause_s))
    (given.out / "NODE.md").write_text("\n".join(report))
    print("\n".join(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
