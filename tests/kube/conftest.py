"""One control plane for all tests here. They skip, with the reason, only where none can be had."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import TREE, AgentProcess
from tests.kube.plane import Plane, binaries, free_port, running, wait_for


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kube)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    try:
        binaries()
    except LookupError as error:
        if os.environ.get("CI"):  # there it can be built, so a missing one is a failure
            pytest.fail(f"no control plane: {error}")
        pytest.skip(f"no control plane: {error}")
    plane = None
    for plane in running(tmp_path_factory.mktemp("plane")):
        plane.apply(*sorted((TREE / "deploy/base").glob("*.yaml")))
        yield plane


@pytest.fixture
def cluster(plane: Plane) -> Iterator[Plane]:
    """The plane without nodes and Pods, before and after."""
    plane.admin.clear()
    yield plane
    for name in plane.schedulers():
        plane.stop_scheduler(name)
    plane.admin.clear()


@pytest.fixture
def start_agents(tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Several agents, each with a folder of its own, which do not slow down however busy this machine is."""
    started: list[AgentProcess] = []

    def start(name: str, *arguments: str) -> AgentProcess:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        config = folder / "config.toml"
        if not config.exists():
            config.write_text(f'[node]\nstate = "{folder}/state"\n[budget]\ncpu_ratio = 1.0\npressure_ratio = 1.0\n')
        started.append(AgentProcess(folder, "--config", str(config), "--node", name, "--quiet", *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.stop(signal.SIGKILL)


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


@pytest.fixture
def start_extender(cluster: Plane, tmp_path: Path) -> Iterator[Callable[..., ExtenderProcess]]:
    started: list[ExtenderProcess] = []

    def start(port: int = 0, **settings: object) -> ExtenderProcess:
        started.append(ExtenderProcess(tmp_path, cluster.kubeconfig("extender-token"), port, **settings))
        return started[-1].ready()

    yield start
    for one in started:
        one.stop(signal.SIGKILL)


def settle(read: Callable[[], object], quiet_s: float = 3.0, timeout_s: float = 60.0) -> object:
    """What `read` says once it has not changed for `quiet_s`."""
    value, since_s, deadline_s = read(), time.monotonic(), time.monotonic() + timeout_s
    while time.monotonic() - since_s < quiet_s:
        assert time.monotonic() < deadline_s, f"does not settle: {value}"
        time.sleep(0.2)
        if (now := read()) != value:
            value, since_s = now, time.monotonic()
    return value
