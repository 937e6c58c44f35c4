"""`carico burst` as a process, as a user would start it."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from lab.support import TREE
from lab.support.control_plane import Plane
from lab.support.waiting import free_port, wait_for

PRICES = "[machines.west]\nbig = 0.68\n"


class BurstProcess:
    """Started at once; `kill` and `start` again as often as wanted."""

    def __init__(
        self, folder: Path, home: Plane, cloud: Plane | None, target: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        """`cloud`: None for a target that does not exist yet. `target`: more of its settings; `settings`: of the
        service."""
        token = "burst-token"
        self.port, self.config, self.log = free_port(), folder / "burst.toml", folder / "burst.log"
        (folder / "prices.toml").write_text(settings.pop("catalogue", PRICES))
        rows = {
            "kubeconfig": str(home.kubeconfig(token)),
            "listen": f"127.0.0.1:{self.port}",
            "unschedulable_s": 1.0,
            "period_s": 0.5,
            "lease_s": 4.0,
            "namespaces": ["default"],
            "prices": str(folder / "prices.toml"),
            **settings,
        }
        there = {
            **({"kubeconfig": str(cloud.kubeconfig(token))} if cloud is not None else {}),
            "region": "west",
            "machine": "big",
            "image_s": 0.0,
            **(target or {}),
        }
        text = "[burst]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items())
        text += "[burst.targets.cloud]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in there.items())
        self.config.write_text(text)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "BurstProcess":
        command = [sys.executable, "-m", "carico_agent", "burst", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=TREE, stdout=log, stderr=log, env={**os.environ})
        return self

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "carico_agent", "burst", *arguments, "--config", str(self.config)]
        return subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=False)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def status(self) -> Any:
        return json.loads(self.get("/v1/burst"))

    def ready(self) -> "BurstProcess":
        def asked() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            try:
                return json.loads(self.get("/readyz"))["ok"] is True
            except (OSError, urllib.error.HTTPError):
                return False

        wait_for(asked, "carico burst is ready", 120)
        return self

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(timeout=30)
