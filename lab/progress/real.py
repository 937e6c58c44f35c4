"""Placement by work left with real jobs: containers that train, two workers of one core each, the real agent.

    python -m lab.progress.real [--pair N … | --kube-pair N … | --half-way N …] [--json FILE]

A pair is one run with `least-left` and one with random placement, the same twelve jobs at the same times; every
second pair begins with the other one (ABBA). `--kube-pair` is a pair with a real kube-scheduler instead of lots.
`--half-way` puts two jobs on one core and compares what was estimated when each of them was half done with what came
true, beside the original's formula. Without either: five pairs and three times half way, ten minutes. Results are
kept in lab/results/progress_real.json, one entry per run; `python -m lab.progress.report` makes the page of them.
Needs root and a containerd; everything it starts is gone at the end.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import nan
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from carico_agent.client import AgentClient, AgentError, AgentUnavailable
from carico_agent.extender.nodes import NodeColumns, NodeState, PendingPod
from carico_agent.extender.policies.least_left import LeastLeft
from lab.progress.real_scheduler import KubeScheduler, control_plane
from lab.progress.train import steps_per_s
from lab.support.containerd import PrivateContainerd, missing
from lab.support.control_plane import Plane
from lab.support.python_container import mounts, prepare

RESULTS = Path(__file__).parents[1] / "results/progress_real.json"
WORKERS, JOBS, WITHIN_S, FIRST_SEED = 2, 12, 24.0, 7000
CPU_S = {
    "logistic regression": 2.0,
    "linear regression": 3.0,
    "matrix factors": 5.0,
    "perceptron": 8.0,
    "k-means": 12.0,
}
"""Of each kind of job; the longest is six times the shortest."""
HALF_WAY_S = 10.0
KUBE = "kube-scheduler"
RUN_LIMIT_S = 240.0
CONFIG = """\
[node]
state = "{folder}/learned"
[progress]
path = "{folder}/progress/progress.sock"
[budget]
cpu_ratio = 1.0
pressure_ratio = 1.0
"""


@dataclass(frozen=True, slots=True)
class ArrivingJob:
    """A job that is to come."""

    arrives_s: float
    workload: str
    steps: int


Place = Callable[[list[NodeState]], int]


class WorkerNode:
    """One containerd and one agent; a worker is a core to which its jobs pin themselves."""

    def __init__(self, containerd: PrivateContainerd) -> None:
        self._containerd, self._out = containerd, containerd.folder / "out"
        self._out.mkdir(exist_ok=True)
        self._cores = sorted(os.sched_getaffinity(0))[:WORKERS]
        self._where: dict[str, int] = {}
        self._client = AgentClient(str(containerd.folder / "agent.sock"))

    @contextmanager
    def agent(self) -> Iterator[None]:
        """An agent that has learned nothing yet."""
        folder = self._containerd.folder
        (folder / "agent.toml").write_text(CONFIG.format(folder=folder))
        arguments = ["--quiet", "--socket", f"{folder}/agent.sock", "--config", f"{folder}/agent.toml"]
        command = [sys.executable, "-m", "carico_agent", "agent", *arguments, "--containerd", self._containerd.socket]
        process = subprocess.Popen(command, env={**os.environ, "STATE_DIRECTORY": f"{folder}/learned"})
        try:
            wait_for(self._is_ready, 30.0, "the agent found the private containerd")
            yield
        finally:
            process.terminate()
            process.wait(20)
        # not after an error: then everything goes, and the containerd may be gone already
        self._containerd.remove(*self._where)
        for file in self._out.iterdir():
            file.unlink()
        self._where.clear()

    def _is_ready(self) -> bool:
        try:
            return "containerd" in self._client.status()["runtime"]
        except (AgentUnavailable, AgentError):
            return False

    def start(self, name: str, job: ArrivingJob, worker: int) -> None:
        progress = self._containerd.folder / "progress"
        flags = mounts((progress, "/run/carico/progress", "ro"), (self._out, "/out", "rw"))
        train = (sys.executable, "-m", "lab.progress.train", job.workload, str(job.steps))
        self._where[name] = worker
        self._containerd.run(name, *train, str(self._cores[worker]), f"/out/{name}", flags=flags)
        go_first(self._containerd.cgroup)

    def marks(self, name: str) -> list[list[float]]:
        """(monotonic time, CPU seconds) at half way and at the end; empty while it runs."""
        try:
            found: list[list[float]] = json.loads((self._out / name).read_text())
        except FileNotFoundError:
            return []
        return found

    def reports(self) -> dict[str, dict[str, Any]]:
        found = self._client.request("GET", "/v1/progress")["jobs"]
        return {job["name"]: job for job in found}

    def states(self) -> list[NodeState]:
        """The workers as the extender would see them."""
        running = [name for name in self._where if not self.marks(name)]
        left = {name: job["left_cpu_s"] for name, job in self.reports().items() if job["left_cpu_s"] is not None}
        run_s = self._client.status()["work"].get("run_s") or nan
        found = []
        for worker in range(WORKERS):
            here = [name for name in running if self._where[name] == worker]
            known = [left[name] for name in here if name in left]
            state = NodeState(str(worker), 100.0, 0.0, 60.0, assigned=len(here), cpu=1.0)
            state.work_jobs, state.work_s, state.lefts_s = len(known), sum(known), tuple(known)
            state.run_s = run_s
            found.append(state)
        return found


def go_first(cgroup: str) -> None:
    """The jobs' own group gets CPU before whatever else this machine does: a worker is to be a whole core."""
    for file, weight in ((f"cpu/{cgroup}/cpu.shares", "16384"), (f"{cgroup}/cpu.weight", "1600")):
        path = Path("/sys/fs/cgroup") / file
        if path.exists():
            path.write_text(weight)


def wait_for(holds: Callable[[], bool], seconds: float, what: str) -> None:
    deadline_s = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)


def by_work_left(states: list[NodeState]) -> int:
    scores = LeastLeft().scores(NodeColumns.of(states), PendingPod("new"), 0.0)
    return scores.index(max(scores))


def place_all(workers: WorkerNode, jobs: Sequence[ArrivingJob], place: Place) -> dict[str, Any]:
    """Every job at its time; completion times from then on."""
    with workers.agent():
        began_s, chosen = time.monotonic(), list[int]()
        for at, job in enumerate(jobs):
            time.sleep(max(0.0, began_s + job.arrives_s - time.monotonic()))
            chosen.append(place(workers.states()))
            workers.start(f"job-{at}", job, chosen[-1])
        names = [f"job-{at}" for at in range(len(jobs))]
        wait_for(lambda: all(map(workers.marks, names)), RUN_LIMIT_S, "all jobs have ended")
        ends = [workers.marks(name)[-1][0] - began_s for name in names]
    took = [end - job.arrives_s for end, job in zip(ends, jobs, strict=True)]
    return {"mean_s": round(mean(took), 2), "makespan_s": round(max(ends), 2), "workers": chosen}


def pair(workers: WorkerNode, number: int, speeds: dict[str, float], plane: Plane | None = None) -> dict[str, Any]:
    """`plane`: against its kube-scheduler instead of random placement."""
    rng = Random(FIRST_SEED + number)
    times, workloads = sorted(rng.uniform(0.0, WITHIN_S) for _ in range(JOBS)), list(CPU_S)
    drawn = [rng.choice(workloads) for _ in range(JOBS)]
    jobs = [
        ArrivingJob(at, workload, int(CPU_S[workload] * speeds[workload]))
        for at, workload in zip(times, drawn, strict=True)
    ]
    arms: dict[str, Place] = {"least-left": by_work_left, "random": lambda states: rng.randrange(WORKERS)}
    if plane is not None:
        plane.admin.clear()
        arms = {"least-left": by_work_left, KUBE: KubeScheduler(plane, WORKERS, lambda n: bool(workers.marks(n))).place}
    other = list(arms)[1]
    order = list(arms) if number % 2 == 0 else list(reversed(arms))
    found: dict[str, Any] = {"load_before": round(os.getloadavg()[0], 1), "order": order}
    for name in order:
        found[name] = place_all(workers, jobs, arms[name])
    found["ratio"] = round(found["least-left"]["mean_s"] / found[other]["mean_s"], 3)
    return found


def half_way(workers: WorkerNode, speeds: dict[str, float]) -> list[dict[str, Any]]:
    """Two jobs on one core; what each was believed to need when it was half done."""
    workloads = ("perceptron", "k-means")
    seen: dict[str, list[tuple[float, dict[str, Any]]]] = {workload: [] for workload in workloads}
    with workers.agent():
        for workload in workloads:
            workers.start(workload.replace(" ", "-"), ArrivingJob(0.0, workload, int(HALF_WAY_S * speeds[workload])), 0)
        deadline_s = time.monotonic() + RUN_LIMIT_S
        while not all(map(workers.marks, workloads)):
            if time.monotonic() > deadline_s:
                raise TimeoutError("two jobs on one core did not end")
            for name, job in workers.reports().items():
                seen[name].append((time.monotonic(), job))
            time.sleep(0.1)
        marks = {workload: workers.marks(workload) for workload in workloads}
    return [_compared(workload, seen, marks[workload]) for workload in workloads]


def _compared(
    workload: str, seen: dict[str, list[tuple[float, dict[str, Any]]]], marks: list[list[float]]
) -> dict[str, Any]:
    (half_s, half_cpu_s), (end_s, end_cpu_s) = marks
    before = [(t, job) for t, job in seen[workload] if t <= half_s and job["left_cpu_s"] is not None]
    now = before[-1][1]
    points = {job["done"]: t - job["age_s"] for t, job in reversed(before)}  # the first look at each report
    (done, last_s), (earlier, earlier_s) = sorted(points.items(), reverse=True)[:2]
    cores = [next(job["cores"] for t, job in reversed(seen[name]) if t <= half_s and job["cores"]) for name in seen]
    share = now["cores"] / sum(cores)
    original_s = (last_s - earlier_s) / (done - earlier) / share * (now["total"] - done)
    return {
        "workload": workload,
        "left_cpu_s": now["left_cpu_s"],
        "truth_cpu_s": round(end_cpu_s - half_cpu_s, 2),
        "left_s": now["left_s"],
        "original_s": round(original_s, 2),
        "truth_s": round(end_s - half_s, 2),
        "share": round(share, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=int, nargs="+", metavar="N", help="only these pairs")
    parser.add_argument("--kube-pair", type=int, nargs="+", metavar="N", help="pairs with kube-scheduler (`make kube`)")
    parser.add_argument("--half-way", type=int, nargs="+", metavar="N", help="two jobs on one core, as these entries")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="where results are kept")
    given = parser.parse_args()
    if reason := missing():
        parser.error(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that containers and cgroups are removed then, too
    everything = not (given.pair or given.half_way or given.kube_pair)
    results: dict[str, Any] = json.loads(given.json.read_text()) if given.json.exists() else {}
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as containerd:
        prepare(containerd)
        (containerd.folder / "progress").mkdir(mode=0o755)
        workers, speeds = WorkerNode(containerd), {workload: steps_per_s(workload) for workload in CPU_S}
        for number in range(3) if everything else given.half_way or ():
            results[f"half-way {number}"] = half_way(workers, speeds)
            print(json.dumps(results[f"half-way {number}"]), flush=True)
            given.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        for number in range(5) if everything else given.pair or ():
            results[f"pair {number}"] = pair(workers, number, speeds)
            print(json.dumps(results[f"pair {number}"]), flush=True)
            given.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        for number in given.kube_pair or ():
            with control_plane() as plane:
                results[f"kube pair {number}"] = pair(workers, number, speeds, plane)
            print(json.dumps(results[f"kube pair {number}"]), flush=True)
            given.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    raise SystemExit(main())
