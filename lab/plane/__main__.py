"""Does it help? A control plane of real parts under a greedy client.

    python -m lab.plane [--arms …] [--loads 0.6 0.9 1.2] [--repeats 5] [--nodes 300] [--pods-per-node 10] [--kwok]

Saturation is measured first (closed loop, 1 to 64 workers), while `carico plane --serve` learns the concurrency curve;
then a client of low priority asks for a share of it, open loop, and node Leases, Pods and rejections are watched. The
arms are in arms.py. Every repeat runs all arms and loads once, in an order of its own.

Rows are added to lab/results/plane.json one by one. A run that was interrupted goes on where it stopped: the same
command skips what was measured with the same code and setup, and keeps its saturation. `--report` only writes
lab/results/plane.md and its figure. `--kwok` has kwok keep the Nodes and their Pods. Needs `make kube`.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from carico_agent.plane.exposition import read
from carico_agent.plane.window import WANTED
from lab.plane.arms import ARMS, CORES, STEP_S, steering
from lab.plane.parts import CLIENTS, LabPlane, has_all, spawn
from lab.plane.runs import PlaneSetup, Rows, code_hash, plan
from lab.support.waiting import free_port, wait_for

TREE = Path(__file__).parents[2]
RESULTS, REPORT = TREE / "lab/results/plane.json", TREE / "lab/results/plane.md"
FIGURE = TREE / "lab/figures/plane-leases.png"
PROBED = 300
"""Node Leases that are renewed and timed, every 10 s each."""
PLANE_CPU, CLIENT_CPU = 0, 1
WRAPPED = "?resourceVersion=0&limit=500"


class PlaneLab:
    """One control plane, filled, and what was measured on it."""

    def __init__(self, folder: Path, setup: PlaneSetup) -> None:
        self.folder, self.setup = folder, setup
        self.plane = LabPlane(folder, PLANE_CPU)
        self.saturation = 0.0
        self.closed_per_s: dict[int, float] = {}
        self.curve: list[tuple[float, float]] = []

    def start(self) -> None:
        self.plane.start_all()
        began_s = time.monotonic()
        self.plane.fill(self.setup.nodes, self.setup.pods_per_node, PROBED)
        if self.setup.kwok:
            self.plane.start_kwok(CLIENT_CPU)
        self.plane.apply(TREE / "deploy/base/00-namespace.yaml", *sorted((TREE / "deploy/plane").glob("1[02]-*.yaml")))
        pods = self.setup.nodes * self.setup.pods_per_node
        print(f"{self.setup.nodes} nodes, {pods} Pods in {time.monotonic() - began_s:.0f} s", flush=True)

    # ---- clients

    def client(self, role: str, seconds: float, *rest: str, nice: int = 0) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "lab.plane.client", role, self.plane.server, str(self.plane.ca), str(seconds)]
        process = spawn([*command, *rest], CLIENT_CPU, nice)
        self.plane.groups.put(CLIENTS, process.pid)
        return process

    def closed(self, workers: int, seconds: float) -> float:
        rate: float = json.loads(self.client("greedy", seconds, "0", "", str(workers)).communicate()[0])["ok_per_s"]
        return rate

    def calibrate(self) -> None:
        service = Service(self, "recommend", 2.0)
        try:
            for workers in (1, 2, 4, 8, 16, 32, 64):
                rate = self.closed(workers, 6.5)
                self.closed_per_s[workers] = rate
                self.saturation = max(self.saturation, rate)
                print(f"{workers} workers: {rate:.0f}/s", flush=True)
            shown = service.shown()
            self.curve = [tuple(point) for point in shown["diagnosis"]["curve"]]
            print(f"curve {[(round(x, 1), round(f, 2)) for x, f in self.curve]}", flush=True)
        finally:
            service.stop()

    # ---- one arm

    def run(self, name: str, load: float) -> dict[str, Any]:
        self.plane.groups.clear()
        arm, rate, setup = ARMS[name], load * self.saturation, self.setup
        service = Service(self, "write", STEP_S) if arm.seats else None
        loop = steering(arm, self)
        listing = WRAPPED if arm.wrapper else ""
        greedy = self.client("greedy", setup.warm_s + setup.measured_s + 1, f"{rate:.1f}", listing, "0")
        try:
            time.sleep(setup.warm_s)
            before, spent = self.rejected(), self.plane.cpu_s()
            earlier = service.cost() if service else None
            others = [self.client("nodes", setup.measured_s, str(PROBED)), self.client("pods", setup.measured_s, "2")]
            leases, pods = (json.loads(one.communicate()[0]) for one in others)
            after, used = self.rejected(), self.plane.cpu_s()
            asked = json.loads(greedy.communicate()[0])
            shown = service.shown() if service else None
            later = service.cost() if service else None
        finally:
            if loop:
                loop.stop()
            if service:
                service.stop()
            self.plane.groups.clear()
        row = {
            "arm": name,
            "load": load,
            "rate": rate,
            "leases": leases,
            "pods": pods,
            "greedy": asked,
            "rejected": {level: after.get(level, 0) - before.get(level, 0) for level in after},
            "cores": {part: (used[part] - spent[part]) / setup.measured_s for part in used},
            "seats": shown and shown["seats"],
            "own": shown and shown["own"],
            "kubernetes": shown and shown["kubernetes"],
            "memory_bytes": self.plane.memory_bytes(),
            "steps": loop.steps if loop else None,
            "closed": self.closed_per_s,
            "period": per_period(earlier, later) if earlier and later else None,
        }
        lease = leases["latency_ms"].get("PATCH", {})
        print(f"{name} at {load}: leases p99 {lease.get('p99')} ms, greedy {asked['ok_per_s']:.0f}/s", flush=True)
        time.sleep(3)
        return row

    def rejected(self) -> dict[str, float]:
        family = "apiserver_flowcontrol_rejected_requests_total"
        text = self.plane.admin.get("/metrics")
        return {level: value for (level,), value in read([text.encode()], WANTED).get(family, {}).items()}


class Service:
    """`carico plane --serve` with the rights of deploy/plane."""

    def __init__(self, lab: PlaneLab, seats: str, period_s: float) -> None:
        self.port, state = free_port(), lab.folder / "state"
        state.mkdir(exist_ok=True)
        lines = [f'etcd = "{lab.plane.etcd.url}/metrics"']
        lines += [f'{part} = "https://127.0.0.1:{port}/metrics"' for part, port in lab.plane.ports.items()]
        config = lab.folder / "carico.toml"
        config.write_text(
            f'[node]\nstate = "{state}"\n[plane]\nseats = "{seats}"\nperiod_s = {period_s}\ncores = {CORES}\n'
            f'listen = "127.0.0.1:{self.port}"\n[plane.components]\n' + "\n".join(lines) + "\n"
        )
        command = [sys.executable, "-m", "carico_agent", "plane", "--serve", "--config", str(config)]
        with (lab.folder / "service.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["taskset", "-c", str(CLIENT_CPU), *command, "--kubeconfig", str(lab.plane.kubeconfig("plane-token"))],
                stdout=log,
                stderr=log,
                cwd=TREE,
            )
        lab.plane.groups.put(CLIENTS, self._process.pid)
        wait_for(lambda: self._shown(), "the service answers")

    def _shown(self) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/plane", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return None

    def shown(self) -> Any:
        return wait_for(lambda: (seen := self._shown()) and seen["diagnosis"] and seen, "the service has looked")

    def cost(self) -> tuple[float, float, float]:
        """When [s], CPU time so far [s], requests so far."""
        seen = self.shown()
        return time.monotonic(), float(seen["own"]["cpu_s"]), float(seen["kubernetes"]["requests"])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)


def per_period(earlier: tuple[float, float, float], later: tuple[float, float, float]) -> dict[str, float]:
    """What one period costs the service once it runs."""
    lasted_s, cpu_s, requests = (b - a for a, b in zip(earlier, later, strict=True))
    periods = lasted_s / STEP_S
    return {"cpu_s": cpu_s / periods, "requests": requests / periods}


# ---- results


def measure(setup: PlaneSetup, arms: list[str], loads: list[float], repeats: int, rows: Rows) -> None:
    if not has_all():
        raise SystemExit("the control plane is not built: make kube")
    left = rows.missing(plan(arms, loads, repeats))
    print(f"{len(left)} runs of about {setup.warm_s + setup.measured_s + 5:.0f} s are left", flush=True)
    if not left:
        return
    with tempfile.TemporaryDirectory(prefix="carico-lab-") as name:
        lab = PlaneLab(Path(name), setup)
        try:
            lab.start()
            if (before := rows.calibration()) is None:
                lab.calibrate()
            else:
                lab.saturation, lab.curve, lab.closed_per_s = before
            for one in left:
                row = lab.run(one.arm, one.load)
                version = ".".join(map(str, lab.plane.version))
                rows.keep(one, {**row, "saturation": lab.saturation, "curve": lab.curve, "version": version})
        finally:
            lab.plane.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--loads", nargs="+", type=float, default=[0.6, 0.9, 1.2], help="shares of saturation")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each arm and load (5)")
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--pods-per-node", type=int, default=10)
    parser.add_argument("--kwok", action="store_true", help="kwok keeps the nodes and their Pods")
    parser.add_argument("--warm", type=float, default=15.0, help="seconds before each measurement (15)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement (30)")
    parser.add_argument("--report", action="store_true", help="only write the report from what was measured")
    given = parser.parse_args()
    setup = PlaneSetup(given.nodes, given.pods_per_node, given.kwok, given.warm, given.seconds, code_hash())
    rows = Rows(RESULTS, setup)
    if not given.report:
        measure(setup, given.arms, given.loads, given.repeats, rows)
    from lab.plane.report import write

    write(rows.all(), REPORT, FIGURE, f"{platform.machine()}, Linux {platform.release()}")


if __name__ == "__main__":
    main()
