"""`make cluster`, step by step: what is started, in which order, and what is waited for."""

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lab.cluster import kwok, node_image, processes
from lab.cluster.plane import ROOT, ClusterPlane
from lab.cluster.real_node import RealNode
from lab.support.kube_versions import part
from lab.support.waiting import free_port, wait_for

HERE = Path(__file__).parent
RESOURCE, CAPACITY = "carico.dev/pods", "carico.dev/pod-capacity"
OURS = ".carico-cluster"
NUMBER_TIMEOUT_S = 600


@dataclass
class OneMachineCluster:
    """Everything lives in `folder`; `down` ends all processes and removes it."""

    folder: Path
    kwok_nodes: int = 3
    real_nodes: int = 1
    started_s: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.started_s:5.0f} s  {text}", flush=True)

    # ---- up

    def up(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / OURS).touch()
        processes.mark(self.folder)
        plane = self._control_plane()
        real = self._start_real_nodes(plane)
        self._deploy(plane)
        names = self._start_kwok_nodes(plane)
        page = self._start_extender(plane)
        for node in real:
            self.say(f"waiting for {node.name}, a virtual machine (console: {node.console})")
            node.wait_ready()
            self.say(f"{node.name} is ready: systemd, cgroup v2, containerd 2 and a kubelet of its own")
        self._wait_for_numbers(plane, [*names, *(node.name for node in real)])
        self._start_samples(plane)
        self._summary(page)

    def _control_plane(self) -> ClusterPlane:
        plane = ClusterPlane(self.folder)
        plane.start()
        plane.start_controllers()
        plane.start_scheduler()
        shutil.copy(plane.kubeconfig("admin-token"), self.folder / "kubeconfig")
        path = f"{plane.bin}:{Path(sys.executable).parent}"
        (self.folder / "env").write_text(f'export KUBECONFIG={self.folder}/kubeconfig PATH="{path}:$PATH"\n')
        self.say(f"control plane: Kubernetes {plane.version[0]}.{plane.version[1]} at {plane.server}, stock scheduler")
        return plane

    def _start_real_nodes(self, plane: ClusterPlane) -> list[RealNode]:
        if not self.real_nodes:
            return []
        if why := node_image.missing():
            self.notes.append(f"no real node: {why}")
            self.say(self.notes[-1])
            return []
        image = node_image.ready(self.say)
        names = [f"real-{number}" for number in range(1, self.real_nodes + 1)]
        nodes = [RealNode(plane, image, self.folder / name, name, number) for number, name in enumerate(names, start=1)]
        for node in nodes:
            node.start()
            self.say(f"{node.name}: a virtual machine boots")
        return nodes

    def _deploy(self, plane: ClusterPlane) -> None:
        self._certificates(plane)
        self._kubectl(plane, "apply", "-k", str(ROOT / "deploy"))
        self._kubectl(plane, "apply", "-f", str(ROOT / "deploy/admission/add-place.yaml"))
        self._kubectl(plane, "-n", "carico", "scale", "deployment", "carico-extender", "--replicas=0")
        self.say("carico's manifests are applied: kubectl apply -k deploy, deploy/admission/add-place.yaml")

    def _certificates(self, plane: ClusterPlane) -> None:
        """The extender's secret, as deploy/README.md says."""
        self._kubectl(plane, "apply", "-f", str(ROOT / "deploy/base/00-namespace.yaml"))
        certificate, key = plane.serving_certificate("extender")
        files = {"ca.crt": plane.ca, "tls.crt": certificate, "tls.key": key}
        given = [f"--from-file={name}={path}" for name, path in files.items()]
        self._kubectl(plane, "-n", "carico", "create", "secret", "generic", "carico-extender-tls", *given)

    def _start_kwok_nodes(self, plane: ClusterPlane) -> list[str]:
        names = [f"kwok-{number}" for number in range(1, self.kwok_nodes + 1)]
        if names:
            kwok.start_kwok(plane, self._start, kwok_binary())
            kwok.start_nodes(plane, self._start, self.folder, names)
            self.say(f"{len(names)} kwok nodes; the agent of each is a process of this machine, on a pretended kernel")
        return names

    def _start_extender(self, plane: ClusterPlane) -> str:
        """On the host, so that the page has an address here; the Deployment would need Pods that really run."""
        page, listen = (f"127.0.0.1:{free_port()}" for _ in range(2))
        kubeconfig = str(plane.kubeconfig("extender-token"))
        carico = (sys.executable, "-m", "carico_agent", "extender", "--kubeconfig", kubeconfig)
        self._start("extender", *carico, "--listen", listen, "--page", page)
        self.say(f"extender: a process of this machine, for its page http://{page}/")
        return f"http://{page}/"

    def _wait_for_numbers(self, plane: ClusterPlane, names: list[str]) -> None:
        for name in names:
            node = wait_for(partial(_numbered, plane, name), f"{name} publishes", NUMBER_TIMEOUT_S, 1.0)
            number, places = node["metadata"]["annotations"][CAPACITY], node["status"]["allocatable"][RESOURCE]
            self.say(f"{name}: {CAPACITY}={number}, {RESOURCE}={places}")

    def _start_samples(self, plane: ClusterPlane) -> None:
        self._kubectl(plane, "apply", "-f", str(HERE / "sample.yaml"))
        where = wait_for(lambda: _placed(plane, 8), "the sample Pods are placed", 120, 0.5)
        shown = ", ".join(f"{count} on {name}" for name, count in sorted(where.items()))
        self.say(f"8 sample Pods placed by the stock scheduler: {shown}")

    def _summary(self, page: str) -> None:
        real = REAL if any(self.folder.glob("real-*")) else ""
        notes = "".join(f"Note: {note}\n" for note in self.notes)
        stop = stop_command(self.folder)
        text = SUMMARY.format(folder=self.folder, page=page, columns=COLUMNS, real=real, notes=notes, stop=stop)
        (self.folder / "summary").write_text(text)
        print(text, flush=True)

    def _start(self, name: str, *command: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=ROOT
            )

    def _kubectl(self, plane: ClusterPlane, *arguments: str) -> str:
        config = f"--kubeconfig={plane.kubeconfig('admin-token')}"
        done = subprocess.run([plane.bin / "kubectl", config, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    # ---- down

    def down(self) -> int:
        """Returns how many processes ran. Removes no folder but one that `up` has made."""
        count = processes.end(self.folder)
        if (self.folder / OURS).exists():
            shutil.rmtree(self.folder)
        return count


COLUMNS = (
    r"NAME:.metadata.name,MORE-PODS:.metadata.annotations.carico\.dev/pod-capacity,"
    r"PLACES:.status.allocatable.carico\.dev/pods"
)
REAL = """\
  kubectl -n carico get pods -o wide
      The DaemonSet: real on real-1. On kwok nodes kwok pretends it, and a process of this machine does its work.
  kubectl -n carico exec $(kubectl -n carico get pods -o name --field-selector spec.nodeName=real-1) -- carico status
      The agent in its container in the virtual machine.
"""
SUMMARY = """
The cluster runs. Its logs, disks and keys are in {folder}.
{notes}
What to try next, in a shell:
  . {folder}/env
      kubectl and kubectl carico talk to this cluster now.
  kubectl get nodes -o custom-columns='{columns}'
      Each node's number, and the places that the scheduler counts.
  kubectl carico
      What is measured, beside what is requested.
  kubectl -n shop scale deployment web --replicas 60; kubectl -n shop get pods -o wide
      As many Pods run as the nodes have places; the others stay Pending.
{real}The page of the cluster: {page}
Stop it:                 {stop}
"""


def stop_command(folder: Path) -> str:
    """What ends the cluster of this folder: `make cluster-down` knows the usual one only."""
    usual = folder == node_image.cache() / "run"
    return "make cluster-down" if usual else f"{sys.executable} -m lab.cluster down --folder {folder}"


def kwok_binary() -> Path:
    return part("kwok").bin / "kwok"


def _numbered(plane: ClusterPlane, name: str) -> Any:
    """The Node, once it has a number and places."""
    node = plane.admin.node(name)
    there = CAPACITY in node["metadata"].get("annotations", {})
    return node if there and int(node["status"].get("allocatable", {}).get(RESOURCE, "0")) > 0 else None


def _placed(plane: ClusterPlane, wanted: int) -> dict[str, int]:
    """Sample Pods per node, once as many as wanted are bound."""
    nodes = [pod["spec"].get("nodeName") for pod in plane.admin.get("/api/v1/namespaces/shop/pods")["items"]]
    bound = [name for name in nodes if name]
    return {name: bound.count(name) for name in set(bound)} if len(bound) >= wanted else {}
