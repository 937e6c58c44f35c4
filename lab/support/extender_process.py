"""`carico extender` as a process, for tests and benchmarks."""

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from lab.support import TREE
from lab.support.waiting import free_port, wait_for


class ExtenderProcess:
    """`carico extender` as a user would start it."""

    def __init__(self, folder: Path, kubeconfig: Path, port: int = 0, **settings: object) -> None:
        self.port = port or free_port()
        self.log = folder / f"extender-{self.port}.log"
        config = folder / f"extender-{self.port}.toml"
        rows = "".join(f"{key} = {_toml(value)}\n" for key, value in settings.items())
        config.write_text(f"[extender]\n{rows}[extender.policies.pod-capacity]\nstarting_ratio = 1.0\n")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "carico_agent",
                    "extender",
                    "--listen",
                    f"127.0.0.1:{self.port}",
                    "--config",
                    str(config),
                    "--kubeconfig",
                    str(kubeconfig),
                ],
                cwd=TREE,
                stdout=log,
                stderr=log,
                env={**os.environ},
            )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ready(self, tls: ssl.SSLContext | None = None) -> "ExtenderProcess":
        wait_for(lambda: self._is_ready(tls), "the extender is ready")
        return self

    def _is_ready(self, tls: ssl.SSLContext | None) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        url = f"{self.url.replace('http:', 'https:') if tls else self.url}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=5, context=tls) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.HTTPError):
            return False

    def filter(self, *names: str) -> str:
        """What it answers kube-scheduler about a Pod and these nodes."""
        body = json.dumps({"Pod": {"metadata": {"uid": "asked"}}, "NodeNames": names}).encode()
        with urllib.request.urlopen(f"{self.url}/filter", body, timeout=5) as answer:
            return str(answer.read().decode())

    def metrics(self, tls: ssl.SSLContext | None = None) -> str:
        url = self.url.replace("http:", "https:") if tls else self.url
        with urllib.request.urlopen(f"{url}/metrics", timeout=5, context=tls) as answer:
            return str(answer.read().decode())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(timeout=20)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
