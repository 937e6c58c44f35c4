"""An extender whom the API server asks about every binding, as deploy/admission/bindings.yaml says."""

import base64
import signal
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from lab.support import TREE
from lab.support.control_plane import Plane
from lab.support.extender_process import ExtenderProcess
from lab.support.kube_admin import HOOKS
from lab.support.waiting import free_port

TOKEN = "0123456789abcdef"


class Webhook:
    """The manifest as it is, but for the address, and for what happens while nobody answers: then nobody may bind,
    unless `policy` says otherwise. `Plane.admin.clear` takes it away again."""

    def __init__(self, plane: Plane, folder: Path, policy: str = "Fail", token: str = "extender-token") -> None:
        self._plane, self._folder, self.port, self._token = plane, folder, free_port(), token
        self._tls = plane.client_context("webhook")
        self._certificate, self._key = plane.serving_certificate("extender")
        self.extender = self._start()
        if token == "extender-token":
            self.extender.ready(self._tls)
        hook: Any = yaml.safe_load((TREE / "deploy/admission/bindings.yaml").read_text())
        ca = base64.b64encode(plane.ca.read_bytes()).decode()
        client = {"url": f"https://127.0.0.1:{self.port}/admit/{TOKEN}", "caBundle": ca}
        hook["webhooks"][0] |= {"clientConfig": client, "failurePolicy": policy}
        plane.admin.post(HOOKS, hook)

    def _start(self) -> ExtenderProcess:
        secret = self._folder / "admission-token"
        secret.write_text(TOKEN)
        return ExtenderProcess(
            self._folder,
            self._plane.kubeconfig(self._token),
            tls_ca=str(self._plane.ca),
            tls_cert=str(self._certificate),
            tls_key=str(self._key),
            admission_listen=f"127.0.0.1:{self.port}",
            admission_token_file=str(secret),
        )

    def restart(self) -> None:
        self.extender.stop(signal.SIGKILL)
        self.extender = self._start().ready(self._tls)

    def readyz(self) -> int:
        """As a kubelet asks: without a certificate."""
        tls = ssl.create_default_context(cafile=str(self._plane.ca))
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{self.port}/readyz", timeout=5, context=tls) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def stop(self) -> None:
        self.extender.stop(signal.SIGKILL)

    def metrics(self) -> str:
        return self.extender.metrics(self._tls)

    def counted(self, name: str) -> float:
        rows = dict(line.rsplit(" ", 1) for line in self.metrics().splitlines())
        return float(rows[f"carico_extender_{name}"])
