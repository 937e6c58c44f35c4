"""An extender whom the API server asks about every binding, as deploy/admission/bindings.yaml says."""

import base64
import signal
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import TREE
from tests.kube.conftest import ExtenderProcess
from tests.kube.plane import Plane, free_port

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Door:
    """The manifest as it is, but for the address, and for what happens while nobody answers: then nobody may bind.
    `Plane.admin.clear` takes it away again."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        self._plane, self._folder, self._port = plane, folder, free_port()
        self._tls = plane.client_context("door")
        self.extender = self._start()
        hook: Any = yaml.safe_load((TREE / "deploy/admission/bindings.yaml").read_text())
        ca = base64.b64encode(plane.ca.read_bytes()).decode()
        client = {"url": f"https://127.0.0.1:{self._port}/admit", "caBundle": ca}
        hook["webhooks"][0] |= {"clientConfig": client, "failurePolicy": "Fail"}
        plane.admin.post(HOOKS, hook)

    def _start(self) -> ExtenderProcess:
        f = self._plane.folder
        one = ExtenderProcess(self._folder, self._plane.kubeconfig("extender-token"), tls_ca=str(self._plane.ca),
                              tls_cert=f"{f}/server.crt", tls_key=f"{f}/server.key",
                              admission_listen=f"127.0.0.1:{self._port}")  # fmt: skip
        return one.ready(self._tls)

    def restart(self) -> None:
        self.extender.stop(signal.SIGKILL)
        self.extender = self._start()

    def stop(self) -> None:
        self.extender.stop(signal.SIGKILL)

    def metrics(self) -> str:
        return self.extender.metrics(self._tls)

    def counted(self, name: str) -> float:
        rows = dict(line.rsplit(" ", 1) for line in self.metrics().splitlines())
        return float(rows[f"carico_extender_{name}"])
