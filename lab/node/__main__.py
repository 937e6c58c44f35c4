"""Pod-Capacity on a real node: containers under a private containerd, the real agent, the number against the truth.

    python -m lab.node [--quick] [--out lab/out]

Bursts of 1 … 2×cores+2 containers that compute pi, twice, with pauses; then containers that hold memory; then one
that is throttled to a tenth of a core. Writes the trace, a picture of each run, and a table.

What was true is in lab/node/run.py, the page in lab/node/report.py.
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
from pathlib import Path

import numpy as np

from carico_agent.client import AgentClient, AgentError, AgentUnavailable
from lab.node.report import events_section, section, throttled_section
from lab.node.run import NodeRun
from lab.support.containerd import PrivateContainerd, missing

PI = ("/bin/busybox", "awk", "BEGIN{while(1){s=0;for(i=0;i<1e6;i++)s+=(i%2?-4:4)/(2*i+1)}}")
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


class NodeLab:
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

    def watch(self, run: NodeRun, stop: threading.Event) -> list[threading.Thread]:
        """Write down what the agent publishes, until `stop` is set."""

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
        run: NodeRun,
        sizes: Sequence[int],
        command: Sequence[str],
        hold_s: float,
        pause_s: float,
        flags: Sequence[str] = (),
        config: str = "",
    ) -> Path:
        """Bursts of containers while the agent runs; returns the trace."""
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
        run = NodeRun("throttled", "cpu", 1.0)
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
        lab = NodeLab(containerd, given.out)
        if "pi" in given.only:
            pi = NodeRun("pi", "cpu", 1.0)
            lab.bursts(pi, sizes, PI, hold_s, pause_s)
            report += [*section(pi, given.out), *events_section(pi)]
        if "memory" in given.only:
            memory = NodeRun("memory", "memory", limit)
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
