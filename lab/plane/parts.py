"""A control plane of real parts for lab/plane: etcd, kube-apiserver, kube-scheduler, kube-controller-manager.

All of it is pinned to one CPU, and those who ask to another: whoever waits then waits for the control plane, and not
for the client. Each component has a cgroup of its own, so that weights and quotas can be given to it (cgroup v1 where
the machine has no cpu controller in v2; cpu.shares is what cpu.weight is there).
"""

import json
import os
import ssl
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

from carico_agent.plane.processes import Periods, periods_in
from lab.cluster.kwok import ANNOTATION, start_kwok
from lab.support import kube_versions
from lab.support.control_plane import Plane, binaries

PARTS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
USERS = {
    "greedy-token": ("system:serviceaccount:lab:greedy", "system:serviceaccounts"),
    "node-token": ("system:node:lab", "system:nodes"),
    "controller-token": ("system:kube-controller-manager", ""),
}
"""FlowSchemas put the first into workload-low, the second into system, the third into workload-high."""
NAMESPACES = 10
CLIENTS = "clients"
"""The cgroup of those who ask. Without one, a client on a machine that others use sent 0.9 where 1.2 was meant."""


class LabPlane(Plane):
    """The tests' control plane, pinned, in cgroups, with more users and a controller manager."""

    def __init__(self, folder: Path, cpu: int) -> None:
        self._cpu = cpu
        super().__init__(folder)
        self.groups = Groups()

    def _files(self) -> None:
        super()._files()
        with (self.folder / "tokens.csv").open("a") as file:
            for token, (user, groups) in USERS.items():
                file.write(f'{token},{user},{user},"{groups}"\n')
        (self.folder / "audit.json").write_text(
            json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None"}]})
        )

    def _run(self, binary: str, *arguments: str, name: str = "") -> None:
        super()._run(binary, *arguments, name=name)
        process = self._processes[name or binary]
        os.sched_setaffinity(process.pid, {self._cpu})
        self.groups.put(binary, process.pid)

    def start_all(self) -> None:
        self.start()
        for token in (*USERS, "scheduler-token"):
            user = {**USERS, "scheduler-token": ("system:kube-scheduler", "")}[token][0]
            self.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", _binding(token, user))
        self.start_scheduler()
        config = self.kubeconfig("controller-token")
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            *self._serving("kube-controller-manager", config),
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={self.folder}/sa.key",
            "--node-monitor-grace-period=10m",
            "--allocate-node-cidrs=false",
        )

    def metrics(self, part: str) -> str:
        if part == "kube-apiserver":
            return str(self.admin.get("/metrics"))
        return self.etcd.metrics() if part == "etcd" else self.component(part, "/metrics")

    def fill(self, nodes: int, pods_per_node: int, leases: int) -> None:
        """Nodes with Pods on them that run, and Leases to renew."""
        ask = Connections(self.port, self.ca).ask
        for n in range(NAMESPACES):
            ask("POST", "/api/v1/namespaces", _object("v1", "Namespace", f"lab-{n}"))
        where = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        every(leases, lambda n: ask("POST", where, _object("coordination.k8s.io/v1", "Lease", f"lab-{n}")))

        def node(n: int) -> None:
            self.admin.add_node(f"lab-{n}", cpus=32, pods=500)
            ask("PATCH", f"/api/v1/nodes/lab-{n}", {"metadata": {"annotations": ANNOTATION}, "spec": {"taints": None}})

        def pod(n: int) -> None:
            where, name = f"/api/v1/namespaces/lab-{n % NAMESPACES}/pods", f"p-{n}"
            ask("POST", where, pod_object(name, f"lab-{n % nodes}"))
            ask("PATCH", f"{where}/{name}/status", {"status": {"phase": "Running"}})

        every(nodes, node)
        every(nodes * pods_per_node, pod)

    def start_kwok(self, cpu: int) -> None:
        """kwok keeps the nodes Ready, renews a Lease of each and runs their Pods: on the clients' CPU."""

        def start(name: str, *command: str) -> "subprocess.Popen[bytes]":
            with (self.folder / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(["taskset", "-c", str(cpu), *command], stdout=log, stderr=log)
            self._processes[name] = process
            self.groups.put(CLIENTS, process.pid)
            return process

        start_kwok(self, start, kube_versions.part("kwok").bin / "kwok")

    def memory_bytes(self) -> dict[str, int]:
        """Resident memory of each part."""
        page = os.sysconf("SC_PAGE_SIZE")
        return {
            name: page * int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            for name, process in self._processes.items()
        }

    def cpu_s(self) -> dict[str, float]:
        """CPU time of each part so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        spent = {}
        for name, process in self._processes.items():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            spent[name] = (int(fields[11]) + int(fields[12])) / ticks
        return spent

    def stop(self) -> None:
        super().stop()
        self.groups.remove()


class Groups:
    """A cgroup per component, below one of ours."""

    def __init__(self) -> None:
        v2 = Path("/sys/fs/cgroup/cgroup.controllers")
        self.v2 = v2.exists() and "cpu" in v2.read_text().split()
        self._root = Path("/sys/fs/cgroup") / ("" if self.v2 else "cpu") / f"carico-lab-{os.getpid()}"

    def put(self, part: str, pid: int) -> None:
        folder = self._root / part
        folder.mkdir(parents=True, exist_ok=True)
        if not self.v2:  # a group counts as much as one process outside of it: this one holds five that are busy
            (self._root / "cpu.shares").write_text(str(16 * 1024))
        if self.v2:
            (self._root / "cgroup.subtree_control").write_text("+cpu")
        (folder / "cgroup.procs").write_text(str(pid))

    def weight(self, part: str, factor: float) -> None:
        """`factor` times the kernel's default."""
        key, base = ("cpu.weight", 100) if self.v2 else ("cpu.shares", 1024)
        (self._root / part / key).write_text(str(round(base * factor)))

    def quota(self, part: str, cores: float | None) -> None:
        quota = "max" if cores is None else str(round(cores * 100_000))
        if self.v2:
            (self._root / part / "cpu.max").write_text(f"{quota} 100000")
        else:
            (self._root / part / "cpu.cfs_quota_us").write_text("-1" if cores is None else quota)

    def periods(self, part: str) -> Periods | None:
        """CFS bandwidth counters of one component."""
        return periods_in(self._root / part)

    def clear(self) -> None:
        for part in PARTS:
            self.weight(part, 1)
            self.quota(part, None)

    def remove(self) -> None:
        for folder in [*(self._root / part for part in (*PARTS, CLIENTS)), self._root]:
            if folder.exists():
                folder.rmdir()


class Connections:
    """A kept connection per thread, as admin: a TLS handshake per request would take longer than the request."""

    def __init__(self, port: int, ca: Path) -> None:
        self._port, self._context = port, ssl.create_default_context(cafile=str(ca))
        self._own = threading.local()

    def ask(self, method: str, path: str, body: dict[str, Any]) -> None:
        if not hasattr(self._own, "connection"):
            self._own.connection = HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=60)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": "Bearer admin-token", "Content-Type": kind}
        self._own.connection.request(method, path, json.dumps(body), headers)
        answer = self._own.connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")


def every(count: int, work: Callable[[int], Any]) -> None:
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(work, range(count)):
            pass


def _object(version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def pod_object(name: str, node: str = "") -> dict[str, Any]:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
    spec: dict[str, Any] = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    return {**_object("v1", "Pod", name), "spec": {**spec, "nodeName": node} if node else spec}


def _binding(name: str, user: str) -> dict[str, Any]:
    return {
        **_object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", f"lab-{name}"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def has_all() -> bool:
    """Whether the controller manager was built, too."""
    try:
        return (binaries() / "kube-controller-manager").exists()
    except LookupError:
        return False


def spawn(arguments: list[str], cpu: int, nice: int = 0) -> "subprocess.Popen[str]":
    """A client as a process of its own on another CPU; it prints one line of JSON."""
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: (os.sched_setaffinity(0, {cpu}), os.nice(nice)),  # type: ignore[arg-type, return-value]
    )
