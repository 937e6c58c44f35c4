"""Does it help? A control plane of real parts under a greedy client: `python -m lab.plane [--loads 1.2] [--arms …]`.

Saturation is measured first (closed loop, 1 to 64 workers), while `carico plane --serve` learns the concurrency curve;
then a client of low priority asks for a share of it, open loop, and node Leases, Pods and rejections are watched. Arms:
nothing; seats, weights, and both; the method of *MerKury* as it is written (quotas, seats, θ and v, but no queue
lengths); its request wrapper, alone and with seats. Arms run in random order, --repeats times. Rows are added to
lab/results/plane.json; `--report` makes lab/results/plane.md and its figure of them. Needs `make kube`.
"""

import argparse
import json
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from carico_agent.plane.components import load_of
from carico_agent.plane.curve import LINEAR, Curve
from carico_agent.plane.exposition import Totals, read
from carico_agent.plane.processes import throttled_ratio
from carico_agent.plane.seats import read_levels, spec_of
from carico_agent.plane.shares import RESERVE, reserve_for
from carico_agent.plane.sizing import NoRecommendation
from carico_agent.plane.whole import ComponentWindow, Given, allocate
from carico_agent.plane.window import WANTED, Scrape, Window, between
from lab.plane.parts import CLIENTS, PARTS, LabPlane, has_all, spawn
from lab.support.kube_admin import AdminError
from lab.support.waiting import free_port, wait_for
from plugins.control_plane.weights import Weight, stepped

TREE = Path(__file__).parents[2]
RESULTS, REPORT = TREE / "lab/results/plane.json", TREE / "lab/results/plane.md"
AGAIN = TREE / "lab/results/plane_again.json"
FIGURE = TREE / "lab/figures/plane-leases.png"
ARMS = ("nothing", "seats", "weights", "seats+weights", "document", "wrapper", "wrapper+seats")
NODES, PODS = 300, 3000
PLANE_CPU, CLIENT_CPU = 0, 1
CORES = 1.0
WARM_S, MEASURED_S = 15.0, 30.0
STEP_S = 5.0
"""Period of the service and of the other arms' loops: 60 s in production, where a day is long."""
MIN_CORES = 0.05
LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
WRAPPED = "?resourceVersion=0&limit=500"


class PlaneLab:
    """One control plane, filled, and what was measured on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plane = LabPlane(folder, PLANE_CPU)
        self.saturation = 0.0
        self.closed_per_s: dict[int, float] = {}
        self.curve: list[tuple[float, float]] = []

    def start(self) -> None:
        self.plane.start_all()
        began_s = time.monotonic()
        self.plane.fill(NODES, PODS)
        self.plane.apply(TREE / "deploy/base/00-namespace.yaml", *sorted((TREE / "deploy/plane").glob("1[02]-*.yaml")))
        print(f"{NODES} nodes, {PODS} Pods in {time.monotonic() - began_s:.0f} s", flush=True)

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

    def run(self, arm: str, load: float) -> dict[str, Any]:
        self.plane.groups.clear()
        rate = load * self.saturation
        service = Service(self, "write", STEP_S) if "seats" in arm else None
        loop = {"weights": Weights, "seats+weights": Weights, "document": DocumentMethod}.get(arm)
        steering = loop(self) if loop else None
        listing = WRAPPED if arm.startswith("wrapper") else ""
        greedy = self.client("greedy", WARM_S + MEASURED_S + 1, f"{rate:.1f}", listing, "0")
        try:
            time.sleep(WARM_S)
            before, spent = self.rejected(), self.plane.cpu_s()
            earlier = service.cost() if service else None
            others = [self.client("nodes", MEASURED_S, str(NODES)), self.client("pods", MEASURED_S, "2")]
            leases, pods = (json.loads(one.communicate()[0]) for one in others)
            after, used = self.rejected(), self.plane.cpu_s()
            asked = json.loads(greedy.communicate()[0])
            shown = service.shown() if service else None
            later = service.cost() if service else None
        finally:
            if steering:
                steering.stop()
            if service:
                service.stop()
            self.plane.groups.clear()
        row = {
            "arm": arm,
            "load": load,
            "rate": rate,
            "leases": leases,
            "pods": pods,
            "greedy": asked,
            "rejected": {level: after.get(level, 0) - before.get(level, 0) for level in after},
            "cores": {part: (used[part] - spent[part]) / MEASURED_S for part in used},
            "seats": shown and shown["seats"],
            "own": shown and shown["own"],
            "kubernetes": shown and shown["kubernetes"],
            "steps": steering.steps if steering else None,
            "closed": self.closed_per_s,
            "period": per_period(earlier, later) if earlier and later else None,
        }
        lease = leases["latency_ms"].get("PATCH", {})
        print(f"{arm} at {load}: leases p99 {lease.get('p99')} ms, greedy {asked['ok_per_s']:.0f}/s", flush=True)
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


class Steering(ABC):
    """A loop beside a run: once per STEP_S."""

    def __init__(self, lab: PlaneLab) -> None:
        self.lab, self._ended, self.steps = lab, threading.Event(), 0
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._ended.wait(STEP_S):
            with suppress(OSError, AdminError):  # a component that does not answer in time: the next step is soon
                self.step()
                self.steps += 1

    @abstractmethod
    def step(self) -> None:
        """Look, and change what follows."""

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


class Weights(Steering):
    """The plugin's rule on this machine's cgroups; held up is the time its threads stood in the run queue."""

    def __init__(self, lab: PlaneLab) -> None:
        self._weights = {part: Weight() for part in PARTS}
        self._waited_s = {part: waited_s(lab, part) for part in PARTS}
        super().__init__(lab)

    def step(self) -> None:
        for part in PARTS:
            now_s = waited_s(self.lab, part)
            ratio = min(1.0, max(0.0, now_s - self._waited_s[part]) / STEP_S)
            self._waited_s[part] = now_s
            answering = part in ("kube-apiserver", "etcd")
            self._weights[part] = stepped(self._weights[part], ratio, time.monotonic(), answering, 30.0)
            self.lab.plane.groups.weight(part, min(8.0, self._weights[part].factor))


def waited_s(lab: PlaneLab, part: str) -> float:
    """Time that threads of this part were ready and had no CPU (/proc/PID/task/*/schedstat)."""
    process = lab.plane._processes[part]
    whole = 0
    for task in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread that ended meanwhile
            whole += int(task.read_text().split()[1])
    return whole / 1e9


class DocumentMethod(Steering):
    """As *MerKury* has it: one cycle of section 4.4.3 per step (plane/whole.py), applied as CFS quotas and as seats.
    What it leaves out: q*, for which the document shortens the queues of Kubernetes' own levels."""

    def __init__(self, lab: PlaneLab) -> None:
        self._old = readings(lab)
        self._given: dict[str, float] = {}
        self._weights = dict.fromkeys(PARTS, 1.0)
        self._periods = {part: lab.plane.groups.periods(part) for part in PARTS}
        super().__init__(lab)

    def step(self) -> None:
        new, old = readings(self.lab), self._old
        self._old = new
        windows = {part: between(old[part], new[part]) for part in PARTS}
        parts = {part: self._part(part, window) for part, window in windows.items() if window is not None}
        with suppress(NoRecommendation):  # a component that did nothing in these seconds
            self._apply(allocate({name: part for name, part in parts.items() if part}, CORES, 0.999))

    def _part(self, name: str, window: Window) -> ComponentWindow | None:
        load = load_of(name, window)
        before, self._periods[name] = self._periods[name], self.lab.plane.groups.periods(name)
        if load is None:
            return None
        curve = Curve.of(self.lab.curve) if name == "kube-apiserver" and self.lab.curve else LINEAR
        throttled = throttled_ratio(before, self._periods[name])
        waiting = window.now("scheduler_pending_pods") or 0.0 if name == "kube-scheduler" else 0.0
        return ComponentWindow(load, curve, self._weights[name], waiting, MIN_CORES, self._given.get(name), throttled)

    def _apply(self, found: dict[str, Given] | str) -> None:
        if isinstance(found, str):
            return
        for name, one in found.items():
            self._given[name], self._weights[name] = max(MIN_CORES, one.cores), one.weight
            self.lab.plane.groups.quota(name, self._given[name])
        api = found.get("kube-apiserver")
        if api is not None and api.seats is not None:
            self._hold_back(api.seats)

    def _hold_back(self, seats: int) -> None:
        admin = self.lab.plane.admin
        shares = reserve_for(600, read_levels(admin.get(LEVELS)["items"], "v1").shares, seats)
        body = {"metadata": {"name": RESERVE}, "spec": spec_of("v1", max(1, shares))}
        try:
            admin.post(LEVELS, body)
        except AdminError as error:
            if error.status != 409:
                raise
            admin.merge(f"{LEVELS}/{RESERVE}", body)

    def stop(self) -> None:
        super().stop()
        with suppress(AdminError):  # it never came to that
            self.lab.plane.admin.delete(f"{LEVELS}/{RESERVE}")


def readings(lab: PlaneLab) -> dict[str, Scrape]:
    def totals(part: str) -> Totals:
        return read([lab.plane.metrics(part).encode()], WANTED)

    return {part: Scrape(time.monotonic(), totals(part)) for part in PARTS}


# ---- results


def measure(arms: list[str], loads: list[float], results: Path = RESULTS, repeats: int = 1) -> None:
    if not has_all():
        raise SystemExit("the control plane is not built: make kube")
    with tempfile.TemporaryDirectory(prefix="carico-lab-") as name:
        lab = PlaneLab(Path(name))
        try:
            lab.start()
            lab.calibrate()
            if results.exists():  # rows of one load are compared: all of one run
                rows = json.loads(results.read_text())
                results.write_text(json.dumps([row for row in rows if row["load"] not in loads], indent=1) + "\n")
            choose = random.Random(19)
            plan = [(load, arm) for _ in range(repeats) for load in loads for arm in choose.sample(arms, len(arms))]
            for n, (load, arm) in enumerate(plan):
                row = {
                    **lab.run(arm, load),
                    "repeat": n // (len(arms) * len(loads)),
                    "saturation": lab.saturation,
                    "curve": lab.curve,
                    "when": _now(),
                }
                row["version"] = ".".join(map(str, lab.plane.version))
                keep(row, results)
        finally:
            lab.plane.stop()


def keep(row: dict[str, Any], results: Path) -> None:
    rows = json.loads(results.read_text()) if results.exists() else []
    key = ("arm", "load", "repeat")
    rows = [one for one in rows if [one.get(name, 0) for name in key] != [row[name] for name in key]]
    results.write_text(json.dumps([*rows, row], indent=1) + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--loads", nargs="+", type=float, default=[1.2])
    parser.add_argument("--repeats", type=int, default=1, help="runs of each arm, in random order (1)")
    parser.add_argument("--again", action="store_true", help="a second run, kept and reported beside the first")
    parser.add_argument("--report", action="store_true", help="only write the report from what was measured")
    given = parser.parse_args()
    if not given.report:
        measure(given.arms, given.loads, AGAIN if given.again else RESULTS, given.repeats)
    from lab.plane.report import write

    rows, again = (json.loads(path.read_text()) if path.exists() else [] for path in (RESULTS, AGAIN))
    write(rows, again, REPORT, FIGURE, f"{platform.machine()}, Linux {platform.release()}")


if __name__ == "__main__":
    main()
