"""A provisioner for trials and tests: a second control plane on this machine, with nodes that kwok pretends.

    provisioner = ["python3", "-m", "carico_agent.burst.local_cluster", "--folder", "DIR", "--bin", "DIR"]

`--bin` has etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok (`make kube` of the source tree
builds them; envtest's assets and a kwok release do as well). Pods of Jobs run for the time in their annotation
`carico.dev/local-work`, 5 s without one, and print what `--log` has.

Speaks the contract of `provisioner`. The cluster of a target is everything below FOLDER/TARGET and the processes that
name this folder: the next run of the command, after a crash as well, finds what is there and does the rest. Only one
run works at a time; others answer `working`.
"""

import argparse
import asyncio
import base64
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from carico_agent.burst.catalogue import ARCH, INSTANCE, REGION
from carico_agent.burst.catalogue import parse_taint as taint_of
from carico_agent.lib.kube.access import from_text
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.net.times import rfc3339

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
READY_S = 60.0
ENDS_S = 10.0
STAGES = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
      - {key: '.status.conditions.[] | select(.type == "Ready") | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now | Quote }}
      conditions:
        - {type: Ready, status: "True", reason: KubeletReady, message: pretended by kwok,
           lastHeartbeatTime: {{ $now }}, lastTransitionTime: {{ $now }}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-running}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
      - {key: .status.phase, operator: In, values: [Pending]}
  next:
    statusTemplate: |
      {{ $now := Now | Quote }}
      phase: Running
      startTime: {{ $now }}
      conditions:
        - {type: Ready, status: "True", lastTransitionTime: {{ $now }}}
      containerStatuses:
      {{ range .spec.containers }}
        - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: "", ready: true, restartCount: 0,
           state: {running: {startedAt: {{ $now }}}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ended}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
      - {key: .status.phase, operator: In, values: [Running]}
      - {key: '.metadata.ownerReferences.[].kind', operator: In, values: [Job]}
  delay:
    durationMilliseconds: 5000
    durationFrom:
      expressionFrom: '.metadata.annotations["carico.dev/local-work"]'
  next:
    statusTemplate: |
      {{ $now := Now | Quote }}
      phase: Succeeded
      conditions:
        - {type: Ready, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now }}}
      containerStatuses:
      {{ range .spec.containers }}
        - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: "", ready: false, restartCount: 0,
           state: {terminated: {exitCode: 0, reason: Completed,
           startedAt: {{ $now }}, finishedAt: {{ $now }}}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-gone}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: Exists}
  next:
    finalizers: {empty: true}
    delete: true
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec:
  logs:
    - {logsFile: LOG}
"""


class LocalError(Exception):
    """The cluster cannot be made here."""


class LocalCluster:
    """One target's control plane below `folder`."""

    def __init__(self, folder: Path, programs: Path, log: str) -> None:
        self.folder, self._programs, self._log = folder, programs, log

    # ---- processes

    def running(self) -> dict[str, int]:
        """Program → process id, of those that name this folder."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            program = Path(os.fsdecode(words[0])).name
            if program in PROGRAMS and any(os.fsencode(f"{self.folder}/") in word for word in words):
                found[program] = int(entry.name)
        return found

    def start(self) -> None:
        """Everything that does not run yet."""
        missing = [name for name in PROGRAMS if not os.access(self._programs / name, os.X_OK)]
        if missing:
            raise LocalError(f"{self._programs} has no {', '.join(missing)}")
        self._prepare()
        alive = self.running()
        for name in PROGRAMS:
            if name not in alive:
                self._run(name)
            if name == "kube-apiserver":
                self._wait_for_certificate()  # the others check it

    def _run(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [str(self._programs / name), *self._arguments(name)]
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _arguments(self, name: str) -> list[str]:
        f, ports = self.folder, self._ports()
        etcd, peer = f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['peer']}"
        serving = ["--bind-address=127.0.0.1", f"--cert-dir={f}/{name}", f"--secure-port={ports.get(name, 0)}"]
        kubeconfig = f"--kubeconfig={f}/kubeconfig"
        quiet = ["--leader-elect=false", "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"]
        match name:
            case "etcd":
                urls = [f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}"]
                urls += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
                return [f"--data-dir={f}/etcd", *urls, f"--initial-cluster=default={peer}", "--unsafe-no-fsync"]
            case "kube-apiserver":
                keys = [f"--service-account-key-file={f}/sa.key", f"--service-account-signing-key-file={f}/sa.key"]
                return [
                    f"--etcd-servers={etcd}",
                    *serving,
                    *keys,
                    "--service-account-issuer=https://kubernetes.default.svc",
                    "--service-cluster-ip-range=10.0.0.0/24",
                    f"--token-auth-file={f}/tokens.csv",
                    "--authorization-mode=RBAC",
                    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                    "--endpoint-reconciler-type=none",
                ]
            case "kube-controller-manager":
                controllers = "--controllers=job,garbagecollector,ttl-after-finished,namespace,podgc"
                return [kubeconfig, *serving, *quiet, controllers]
            case "kube-scheduler":
                return [kubeconfig, *serving, *quiet]
        certificate = f"{f}/kube-apiserver/apiserver"
        return [
            kubeconfig,
            f"--config={f}/kwok.yaml",
            "--manage-all-nodes=true",
            "--node-ip=127.0.0.1",
            f"--node-port={ports['kwok']}",
            f"--server-address=127.0.0.1:{ports['kwok']}",
            f"--tls-cert-file={certificate}.crt",
            f"--tls-private-key-file={certificate}.key",
        ]

    def stop(self) -> None:
        """End all processes and remove all that is known of them."""
        deadline_s = time.monotonic() + ENDS_S
        while alive := self.running():
            number = signal.SIGTERM if time.monotonic() < deadline_s - ENDS_S / 2 else signal.SIGKILL
            for pid in alive.values():
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            time.sleep(0.1)
            if time.monotonic() > deadline_s:
                raise LocalError(f"{', '.join(alive)} cannot be ended")
        shutil.rmtree(self.folder)

    # ---- files

    def _prepare(self) -> None:
        """Files that all processes need, each written once and whole."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._once("ports.json", lambda: json.dumps(_free_ports()))
        self._once("token", lambda: secrets.token_hex(24))
        token = (self.folder / "token").read_text()
        self._once("tokens.csv", lambda: f'{token},admin,admin,"system:masters"\n')
        self._once("sa.key", _rsa_key)
        self._once("pod.log", lambda: "".join(f"{rfc3339()} stdout F {line}\n" for line in self._log.splitlines()))
        self._once("kwok.yaml", lambda: STAGES.replace("LOG", f"{self.folder}/pod.log"))

    def _once(self, name: str, make: Callable[[], str]) -> None:
        path = self.folder / name
        if not path.exists():
            new = path.with_suffix(".new")
            new.write_text(make())
            new.chmod(0o600)
            new.replace(path)

    def _ports(self) -> dict[str, int]:
        ports: dict[str, int] = json.loads((self.folder / "ports.json").read_text())
        return ports

    def _wait_for_certificate(self) -> None:
        """kube-apiserver makes its own certificate, with its authority behind it in the same file."""
        path = self.folder / "kube-apiserver/apiserver.crt"
        deadline_s = time.monotonic() + READY_S
        while not (path.exists() and path.read_text().count("END CERTIFICATE") >= 2):
            if time.monotonic() > deadline_s:
                raise LocalError(f"kube-apiserver does not start: see {self.folder}/kube-apiserver.log")
            time.sleep(0.1)
        self._once("kubeconfig", self._kubeconfig)

    def _kubeconfig(self) -> str:
        text = (self.folder / "kube-apiserver/apiserver.crt").read_bytes()
        server = f"https://127.0.0.1:{self._ports()['kube-apiserver']}"
        cluster = {"server": server, "certificate-authority-data": base64.b64encode(text).decode()}
        user = {"token": (self.folder / "token").read_text()}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "local",
                "clusters": [{"name": "local", "cluster": cluster}],
                "users": [{"name": "admin", "user": user}],
                "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            }
        )

    def kubeconfig(self) -> str:
        path = self.folder / "kubeconfig"
        return path.read_text() if path.exists() else ""

    def node(self, name: str, machine: str, row: Object, region: str) -> Object:
        """A Node object as the catalogue describes this machine."""
        have = {
            "cpu": str(row.get("cpu") or 16),
            "memory": str(int((row.get("memory_gb") or 16) * 1e9)),
            "pods": str(row.get("pods") or 110),
            **{key: str(int(amount)) for key, amount in (row.get("resources") or {}).items()},
        }
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", ARCH: row.get("arch") or "amd64"}
        labels |= {INSTANCE: machine} if machine else {}
        labels |= {REGION: region} if region else {}
        taints = [taint_of(text).__dict__ for text in row.get("taints") or ()]
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        endpoint = {"kubeletEndpoint": {"Port": self._ports()["kwok"]}}
        status = {"capacity": have, "allocatable": have, "addresses": addresses, "daemonEndpoints": endpoint}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**labels, **(row.get("labels") or {})}},
            "spec": {"taints": taints},
            "status": status,
        }


def _rsa_key() -> str:
    done = subprocess.run(["openssl", "genrsa", "2048"], capture_output=True, text=True, check=True)
    return done.stdout


def _free_ports() -> dict[str, int]:
    """One for each server, all at once so that no two are the same."""
    names = ("etcd", "peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
    sockets = [socket.socket() for _ in names]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return {name: one.getsockname()[1] for name, one in zip(names, sockets, strict=True)}
    finally:
        for one in sockets:
            one.close()


async def scale(cluster: LocalCluster, client: KubeClient, request: Object) -> dict[str, int]:
    """As many nodes of each machine as were asked for; those in `busy` stay. Returns how many there are."""
    await _until_ready(client)
    wanted = request.get("machines") or {"": {"nodes": int(request.get("nodes") or 0)}}
    have = await _nodes(client)
    busy = set(request.get("busy") or ())
    for machine in {*wanted, *have}:
        row = wanted.get(machine) or {}
        names, count = have.get(machine, []), int(row.get("nodes") or 0)
        prefix = re.sub(r"[^a-z0-9-]+", "-", f"{request['target']}-{machine or 'node'}".lower()).strip("-")
        free = (f"{prefix}-{number}" for number in range(1_000_000) if f"{prefix}-{number}" not in names)
        for _ in range(count - len(names)):
            await client.post("/api/v1/nodes", cluster.node(next(free), machine, row, request.get("region") or ""))
        for name in [name for name in names if name not in busy][: max(0, len(names) - count)]:
            await client.delete(f"/api/v1/nodes/{name}")
    return {machine: len(names) for machine, names in (await _nodes(client)).items()}


async def _nodes(client: KubeClient) -> dict[str, list[str]]:
    """Machine → names."""
    found: dict[str, list[str]] = {}
    for node in (await client.get("/api/v1/nodes")).get("items") or ():
        machine = (node["metadata"].get("labels") or {}).get(INSTANCE, "")
        found.setdefault(machine, []).append(node["metadata"]["name"])
    return found


async def _until_ready(client: KubeClient) -> None:
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            await client.get("/api/v1/namespaces/default")
            await client.get("/api/v1/namespaces/kube-system")
            return
        except KubeError:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.2)


async def carry_out(cluster: LocalCluster, request: Object) -> Object:
    """One request; the report."""
    verb = request["verb"]
    if verb == "delete" and cluster.folder.exists():
        cluster.stop()
    if verb == "scale":
        cluster.start()
    if not cluster.folder.exists():
        return {"state": "absent"}
    kubeconfig = cluster.kubeconfig()
    if not kubeconfig:
        return {"state": "working", "message": "the API server is not there yet"}
    async with KubeClient(from_text(kubeconfig, "kubeconfig"), timeout_s=5.0) as client:
        if verb == "scale":
            machines = await scale(cluster, client, request)
        else:
            machines = {machine: len(names) for machine, names in (await _nodes(client)).items()}
    count = sum(machines.values())
    return {"state": "ready", "nodes": count, "machines": machines, "kubeconfig": kubeconfig}


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Whether this run is the only one that works on a cluster. The lock ends with the process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", required=True, type=Path, help="data of all local clusters")
    parser.add_argument("--bin", required=True, type=Path, help=f"has {', '.join(PROGRAMS)}")
    parser.add_argument("--log", default="pretended by kwok", help="what every Pod prints")
    given = parser.parse_args(argv)
    try:
        request = json.load(sys.stdin)
        if request["verb"] not in ("scale", "delete", "status"):
            raise ValueError(f"verb {request['verb']!r}")
        folder = given.folder.resolve() / str(request["target"])
        with alone(folder.with_suffix(".lock")) as mine:
            cluster = LocalCluster(folder, given.bin, given.log)
            report = asyncio.run(carry_out(cluster, request)) if mine else {"state": "working"}
    except (KubeError, LocalError, OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"carico local_cluster: {error}\n")
        return 1
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
