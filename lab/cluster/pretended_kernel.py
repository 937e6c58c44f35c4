"""What the kernel of a kwok node would show: proc/ and sys/fs/cgroup in a folder, by the Pods that are bound to it.

    python -m lab.cluster.pretended_kernel KUBECONFIG FOLDER NODE…

kwok runs no containers, so such a node has nothing that could be measured. Here each Pod that kwok calls running takes
what its annotation says (`carico-lab/cpu`, in cores; half a core without one), and a real agent reads the files with
`[node] root = FOLDER/NODE`. Beyond the cores everyone gets less and waits, as measured on a real node: n busy loops on
two cores gave a pressure of min(1, (n − 2) / 2).
"""

import base64
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab.support.kube_admin import Admin, AdminError

CORES, MEMORY_KB = 4, 16 << 20
HOST_CORES, HOST_KB = 0.1, 1 << 20
POD_CORES, POD_KB = 0.5, 100 << 10
CPU = "carico-lab/cpu"
WRITE_EVERY_S, LIST_EVERY_S = 0.1, 1.0
PODS = "sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice"
MEMORY = f"MemTotal: {MEMORY_KB} kB\nMemFree: {{0:016}} kB\nMemAvailable: {{0:016}} kB\n"
STALLED = "{0} avg10=0.00 avg60=0.00 avg300=0.00 total={1:016}\n"


@dataclass
class PretendedPod:
    """`cores`: what it would take if it were alone."""

    folder: Path
    logs: Path
    cores: float
    used_usec: float = 0.0
    waited_usec: float = 0.0

    def step(self, elapsed_usec: float, granted: float) -> None:
        self.used_usec += elapsed_usec * self.cores * granted
        self.waited_usec += elapsed_usec * (1.0 - granted)
        used = f"usage_usec {self.used_usec:016.0f}\nuser_usec {self.used_usec:016.0f}\nsystem_usec 0\n"
        write(self.folder / "cpu.stat", f"{used}nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")
        write(self.folder / "cpu.pressure", stalled(self.waited_usec))


@dataclass
class PretendedNode:
    root: Path
    pods: dict[str, PretendedPod] = field(default_factory=dict)
    busy_usec: float = 0.0
    idle_usec: float = 0.0
    waited_usec: float = 0.0

    def __post_init__(self) -> None:
        write(self.root / "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
        for name in ("memory", "io"):
            write(self.root / f"proc/pressure/{name}", stalled(0.0))
        (self.root / PODS).mkdir(parents=True)
        self.step(0.0)

    def have(self, cores: dict[str, float]) -> None:
        """Who runs here, by NAMESPACE_NAME_UID, which is what a kubelet calls the folder of a Pod's logs."""
        for name in self.pods.keys() - cores.keys():
            pod = self.pods.pop(name)
            shutil.rmtree(pod.folder)
            pod.logs.rmdir()
        for name in cores.keys() - self.pods.keys():
            logs, uid = self.root / "var/log/pods" / name, name.rpartition("_")[2]
            logs.mkdir(parents=True)
            folder = self.root / PODS / f"kubepods-besteffort-pod{uid.replace('-', '_')}.slice"
            write(folder / "memory.current", f"{POD_KB << 10}\n")
            write(folder / "memory.stat", "anon 0\ninactive_file 0\n")
            write(folder / "cpu.max", "max 100000\n")
            for file in ("cgroup.procs", "cgroup.threads"):
                write(folder / file, "")
            self.pods[name] = PretendedPod(folder, logs, cores[name])

    def step(self, elapsed_s: float) -> None:
        wanted = HOST_CORES + sum(pod.cores for pod in self.pods.values())
        granted, elapsed_usec = min(1.0, CORES / wanted), elapsed_s * 1e6
        self.busy_usec += elapsed_usec * min(wanted, CORES)
        self.idle_usec += elapsed_usec * (CORES - min(wanted, CORES))
        self.waited_usec += elapsed_usec * min(1.0, max(0.0, wanted - CORES) / CORES)
        ticks = [f"{round(usec / 1e4):016}" for usec in (self.busy_usec, self.idle_usec)]
        lines = [f"cpu{name} {ticks[0]} 0 0 {ticks[1]} 0 0 0 0 0 0\n" for name in (" ", *range(CORES))]
        write(self.root / "proc/stat", f"{''.join(lines)}intr 0\nbtime 1700000000\nprocs_running 1\nprocs_blocked 0\n")
        write(self.root / "proc/pressure/cpu", stalled(self.waited_usec))
        write(self.root / "proc/meminfo", MEMORY.format(MEMORY_KB - HOST_KB - POD_KB * len(self.pods)))
        for pod in self.pods.values():
            pod.step(elapsed_usec, granted)


def stalled(usec: float) -> str:
    return STALLED.format("some", round(usec)) + STALLED.format("full", 0)


def write(path: Path, text: str) -> None:
    """In place and always of the same length: an agent keeps the file open, and must not see half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, text.encode(), 0)
    finally:
        os.close(descriptor)


def by_node(pods: list[Any]) -> dict[str, dict[str, float]]:
    """Node -> NAMESPACE_NAME_UID -> cores, of Pods that run. A DaemonSet's count for nothing: it is carico's own."""
    found: dict[str, dict[str, float]] = {}
    for pod in pods:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        owners = [owner["kind"] for owner in metadata.get("ownerReferences", ())]
        if node and pod["status"].get("phase") == "Running" and "DaemonSet" not in owners:
            cores = float(metadata.get("annotations", {}).get(CPU, POD_CORES))
            found.setdefault(node, {})["_".join(metadata[key] for key in ("namespace", "name", "uid"))] = cores
    return found


def run(admin: Admin, nodes: dict[str, PretendedNode]) -> None:
    last_s = listed_s = time.monotonic()
    while True:
        time.sleep(WRITE_EVERY_S)
        now_s = time.monotonic()
        if now_s - listed_s >= LIST_EVERY_S:
            listed_s = now_s
            try:
                running = by_node(admin.get("/api/v1/pods")["items"])
            except (OSError, AdminError) as error:  # the API server is away; the Pods go on running
                print(f"pretended kernel: {error}", file=sys.stderr, flush=True)
            else:
                for name, node in nodes.items():
                    node.have(running.get(name, {}))
        for node in nodes.values():
            node.step(now_s - last_s)
        last_s = now_s


def main(kubeconfig: str, folder: str, *names: str) -> None:
    config = yaml.safe_load(Path(kubeconfig).read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ca = Path(folder) / "ca.crt"
    ca.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    admin = Admin(cluster["server"], ca, user["token"])
    run(admin, {name: PretendedNode(Path(folder) / name) for name in names})


if __name__ == "__main__":
    main(*sys.argv[1:])
