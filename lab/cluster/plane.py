"""The control plane of a whole cluster: as lab/support's, and with controllers, service accounts and real kubelets."""

import json
import subprocess
import sys
from pathlib import Path

from lab.cluster.machine import Network
from lab.support.control_plane import Plane
from lab.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
MAX_MACHINES = 9
SERVICE = "10.0.0.1"
"""The API server's address for Pods: the first of its service range."""


class ClusterPlane(Plane):
    """Its processes are no part of the terminal's session: they go on when the command that started them has ended."""

    SERVER_NAMES = (
        *Plane.SERVER_NAMES,
        "DNS:kubernetes.default.svc",
        f"IP:{SERVICE}",
        *(f"IP:{Network(number).host}" for number in range(1, MAX_MACHINES + 1)),
    )
    ACCESS = (
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--endpoint-reconciler-type=none",
    )

    def start(self) -> None:
        self.start_kubelet_proxy()
        super().start()

    def start_controllers(self) -> None:
        config = self.kubeconfig("admin-token")
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            *self._serving("kube-controller-manager", config),
            f"--service-account-private-key-file={self.folder}/sa.key",
            f"--root-ca-file={self.ca}",
            "--leader-elect=false",
            "--node-monitor-grace-period=120s",  # an emulated node may be late
        )
        account = "/api/v1/namespaces/default/serviceaccounts"
        wait_for(lambda: self.admin.get(account)["items"], "the controllers have made the default service account", 180)

    def start_kubelet_proxy(self) -> None:
        """Before the API server."""
        self._processes["kubelet-proxy"] = self._spawn(
            "kubelet-proxy", sys.executable, "-m", "lab.cluster.kubelet_proxy", self._socket, str(self._ports)
        )

    def forward(self, node: str, port: int) -> None:
        """The kubelet of `node` is this port of the host's loopback."""
        ports = json.loads(self._ports.read_text()) if self._ports.exists() else {}
        self._ports.write_text(json.dumps({**ports, node: port}))

    @property
    def _ports(self) -> Path:
        return self.folder / "kubelets.json"

    @property
    def _socket(self) -> str:
        return f"{self.folder}/kubelets.sock"

    def _kubelet_flags(self) -> list[str]:
        connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": self._socket}}}
        egress = {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}],
        }
        path = self.folder / "egress.json"
        path.write_text(json.dumps(egress))
        certificate, key = self.client_certificate("kubelet-client", "kube-apiserver")
        return [
            f"--egress-selector-config-file={path}",
            f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}",
        ]

    def node_certificate(self, name: str) -> tuple[Path, Path]:
        """A client certificate of the kubelet of node `name`, as the Node authorizer wants it."""
        request = f"req -new -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr"
        self._openssl(f"{request} -subj /O=system:nodes/CN=system:node:{name}")
        self._openssl(f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt -days 2")
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def _run(self, binary: str, *arguments: str, name: str = "") -> None:
        if binary == "kube-apiserver":
            arguments = (*arguments, *self._kubelet_flags())
        self._processes[name or binary] = self._spawn(name or binary, str(self.bin / binary), *arguments)

    def _spawn(self, name: str, *command: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=ROOT
            )
