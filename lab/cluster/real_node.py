"""A virtual machine that is a node of the cluster: systemd, cgroup v2, containerd 2 and a kubelet of its own.

The machine reaches the API server on the host's loopback through QEMU's user network. Its Pods have addresses of a
bridge in the machine, and reach the API server at its service address: one NAT rule in the machine is all of
kube-proxy that they need.
"""

import base64
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from lab.cluster.container_image import PACKAGES, add_bytes
from lab.cluster.machine import Network, VirtualMachine, overlay
from lab.cluster.node_image import NodeImage
from lab.cluster.plane import SERVICE, ClusterPlane
from lab.support.kube_admin import AdminError
from lab.support.waiting import free_port, wait_for

KUBELET_PORT = 10250
READY_TIMEOUT_S = 600
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"x509": {"clientCAFile": "/etc/node/ca.crt"}, "anonymous": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "systemd",
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "makeIPTablesUtilChains": False,
    "port": KUBELET_PORT,
    "runtimeRequestTimeout": "10m",  # containers start slowly in an emulated machine
}
SETUP = """\
set -e
echo {name} >/proc/sys/kernel/hostname
for chain in PREROUTING OUTPUT; do
  iptables -w -t nat -A $chain -d {service}/32 -p tcp --dport 443 -j DNAT --to-destination {host}:{port}
done
[ ! -e /etc/node/more.sh ] || systemd-run --unit=node-more sh /etc/node/more.sh
"""
SERVICE_SETUP = """\
set -e
# The user first: the agent must be able to read its kubeconfig when `carico install` starts it.
systemd-sysusers /{packages}/carico_units/sysusers.conf
chown carico: /etc/carico/kubeconfig
/opt/carico/bin/carico install --systemd >/dev/ttyS0 2>&1
"""


class RealNode:
    """`number` (from 1) chooses its networks; it becomes the Node `name`."""

    def __init__(self, plane: ClusterPlane, image: NodeImage, folder: Path, name: str, number: int = 1) -> None:
        self._plane, self.name, self.folder, self.network = plane, name, folder, Network(number)
        self.console = folder / "console.log"
        self.kubelet_port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        overlay(image.disk, folder / "disk.qcow2")
        self._files: dict[str, bytes] = self._own_files()
        self._machine = VirtualMachine(
            image.kernel, image.initrd, folder / "disk.qcow2", folder / "files.tar", self.console, self.network
        )
        self._process: subprocess.Popen[bytes] | None = None

    def install_service(self, token: str) -> None:
        """Before `start`: carico becomes a systemd service of the node, as docs/service.md says."""
        self._files |= {
            "etc/carico/config.toml": b'[kubernetes]\nkubeconfig = "/etc/carico/kubeconfig"\n',
            "etc/carico/kubeconfig": self._kubeconfig({"token": token}),
            "etc/node/more.sh": SERVICE_SETUP.format(packages=PACKAGES).encode(),
        }

    def start(self) -> None:
        with tarfile.open(self.folder / "files.tar", "w") as tar:
            for name, data in self._files.items():
                add_bytes(tar, name, data, mode=0o600 if name.endswith("kubeconfig") else 0o644)
        self._plane.forward(self.name, self.kubelet_port)
        self._process = self._machine.start({self.kubelet_port: KUBELET_PORT})

    def wait_ready(self) -> Any:
        """The Node object, once its kubelet says that it is ready."""
        return wait_for(self._ready, f"node {self.name} is ready (its console: {self.console})", READY_TIMEOUT_S, 1.0)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _ready(self) -> Any:
        assert self._process is not None
        assert self._process.poll() is None, f"the machine ended:\n{self.console.read_text(errors='replace')[-3000:]}"
        try:
            node = self._plane.admin.node(self.name)
        except AdminError as error:
            if error.status != 404:
                raise
            return None
        conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", ())}
        return node if conditions.get("Ready") == "True" else None

    def _own_files(self) -> dict[str, bytes]:
        setup = SETUP.format(name=self.name, service=SERVICE, host=self.network.host, port=self._plane.port)
        certificate, key = self._plane.node_certificate(self.name)
        kubelet = {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
        return {
            "etc/node/setup.sh": setup.encode(),
            "etc/node/kubelet.env": f"NODE_NAME={self.name}\n".encode(),
            "etc/node/kubelet.json": json.dumps(KUBELET).encode(),
            "etc/node/kubeconfig": self._kubeconfig(kubelet),
            "etc/node/ca.crt": self._plane.ca.read_bytes(),
            "etc/cni/net.d/10-pods.conflist": json.dumps(self._pod_network()).encode(),
            "etc/hostname": f"{self.name}\n".encode(),
            "etc/resolv.conf": b"# no names: what runs here knows the API server by its address\n",
        }

    def _kubeconfig(self, user: dict[str, str]) -> bytes:
        server = f"https://{self.network.host}:{self._plane.port}"
        cluster = {"server": server, "certificate-authority-data": _encoded(self._plane.ca)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "node",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "node", "context": {"cluster": "cluster", "user": "user"}}],
        }
        return json.dumps(config).encode()

    def _pod_network(self) -> dict[str, Any]:
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": self.network.pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, {"type": "loopback"}]}


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
