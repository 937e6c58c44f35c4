"""Real containers beside busy neighbours, each seen as a container and as a process at once."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from carico_agent.core import ModelConfig
from carico_agent.node.pods.cgroups import Locator
from carico_agent.node.pods.demand import Demand
from carico_agent.node.pods.meter import open_cgroups
from carico_agent.node.pods.pods import Pod
from carico_agent.node.pods.processes import ProcessRuntime
from lab.bench.pods import pods_of
from lab.crowded.cells import NEIGHBOURS, WORKLOADS, CrowdedCell, CrowdLoad
from lab.crowded.watch import CORES, NodeWatch, follow
from lab.support.alone import prefer
from lab.support.containerd import PrivateContainerd, _pids

PERIOD_S = 3.5
"""Less than the agent's 5 s, so that a cell takes less time; each reading is noisier than the agent's."""
ALONE_S, AGED_S, STARTED_S = 12.5, 7.5, 13.0
PERIOD_USEC = 100_000
QUIET_RATIO = 0.9


class NoCompiler(RuntimeError):
    """The workload is a C program."""


def build(binary: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("no C compiler (cc)")
    source = Path(__file__).with_name("load.c")
    subprocess.run([compiler, "-O2", "-static", "-pthread", "-o", binary, source], check=True)


class Crowd:
    """One private containerd: a workload, and neighbours that are always runnable."""

    def __init__(self, containerd: PrivateContainerd, first: bool = False) -> None:
        """`first`: before all other users of this machine."""
        self._containerd, self._first = containerd, first
        self._locator = Locator(Path("/"))
        self._neighbours = 0
        self._serial = 0
        build(containerd.rootfs / "bin/load")

    def neighbours(self, count: int) -> None:
        for number in range(self._neighbours, count):
            self._containerd.run(f"n{number}", "/bin/load", "busy", "1")
        for number in range(count, self._neighbours):
            self._containerd.remove(f"n{number}")
        self._neighbours = count
        if self._first:
            prefer(self._containerd.cgroup)

    def start(self, load: CrowdLoad) -> "CrowdedPod":
        name = f"{load.name}-{self._serial}"
        self._serial += 1
        quota = ("--cpu-quota", str(int(load.quota_cores * PERIOD_USEC)), "--cpu-period", str(PERIOD_USEC))
        command = ("/bin/load", load.workload, str(load.threads))
        self._containerd.run(name, *command, flags=quota if load.quota else ())
        if self._first:
            prefer(self._containerd.cgroup)
        (pod,) = pods_of(self._locator, self._containerd.cgroup, [name]).values()
        return CrowdedPod(name, pod, self._locator, self._pid(name))

    def _pid(self, name: str) -> int:
        group = self._locator.at(f"/{self._containerd.cgroup}/{name}")
        assert group is not None
        return _pids(Path(group.unified or group.controllers["cpu"]))[0]

    def stop(self, pod: "CrowdedPod") -> None:
        pod.close()
        self._containerd.remove(pod.name)

    def cells(self, load: CrowdLoad, beside: Sequence[int] = NEIGHBOURS, started: bool = True) -> Iterator[CrowdedCell]:
        """All cells of one workload: alone, then as neighbours come, then started anew beside them."""
        self.neighbours(0)
        pod = self.start(load)
        try:
            alone = pod.alone()
            truth = truth_of(load, alone)
            seen_quiet = pod.was_quiet() and alone >= QUIET_RATIO * min(truth, CORES)
            for count in beside:
                self.neighbours(count)
                yield from pod.found(load, truth, count, seen_quiet, 0.0 if count == 0 else AGED_S)
        finally:
            self.stop(pod)
        for count in sorted(beside, reverse=True) if started else ():
            if count:
                self.neighbours(count)
                pod = self.start(load)
                try:
                    yield from pod.found(load, truth, count, None, STARTED_S)
                finally:
                    self.stop(pod)
        self.neighbours(0)


class CrowdedPod:
    """One container, watched in both ways."""

    def __init__(self, name: str, pod: Pod, locator: Locator, pid: int) -> None:
        self.name = name
        runtime = ProcessRuntime()
        key = runtime.register(pid, name)
        config = ModelConfig(cores=CORES)
        watches = {
            "container": NodeWatch({pod.key: pod}, open_cgroups(locator), PERIOD_S, config),
            "process": NodeWatch(runtime.pods, runtime.open_pod(), PERIOD_S, config),
        }
        self._workloads = {"container": pod.workload, "process": runtime.pods[key].workload}
        self._watches = watches
        now_s = time.monotonic()
        for watch in watches.values():
            watch.start_empty(now_s - 0.5)

    def alone(self) -> float:
        """What it uses while nothing else runs [cores]."""
        watches = list(self._watches.values())
        follow(watches, ALONE_S)
        return _mean([one.cpu_usage_cores for one in self._watches["container"].demands[2:]])

    def was_quiet(self) -> bool:
        """It hardly waited until now for a CPU that others had."""
        found = self._watches["container"].demands[2:]
        return _mean([one.waited_cores for one in found]) <= (1 - QUIET_RATIO) * _mean([one.cpu_cores for one in found])

    def found(
        self, load: CrowdLoad, truth: float, neighbours: int, seen_quiet: bool | None, seconds: float
    ) -> Iterator[CrowdedCell]:
        """`seen_quiet`: whether it was, before neighbours came; None: they were there first."""
        before = {name: len(watch.demands) if seconds else 2 for name, watch in self._watches.items()}
        follow(list(self._watches.values()), seconds)
        for seen_as, watch in self._watches.items():
            demands: list[Demand] = watch.demands[before[seen_as] :]
            used = _mean([one.cpu_usage_cores for one in demands])
            waited = _mean([one.waited_cores for one in demands])
            what = load.workload, load.threads, load.quota, seen_as, neighbours, seen_quiet is None
            yield CrowdedCell(
                *what, truth, *watch.cost_of(self._workloads[seen_as]), used, used + waited, seen_quiet is True
            )

    def close(self) -> None:
        for watch in self._watches.values():
            watch.close()


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def truth_of(load: CrowdLoad, alone: float) -> float:
    """What it would use on an empty machine with CPUs enough for its threads.

    By construction, except for think with a quota, which stops it in bursts (that of open never does).
    """
    wanted = WORKLOADS[load.workload] * load.threads
    if not load.quota:
        return wanted
    return alone if load.workload == "think" else min(wanted, load.quota_cores)
