"""One control plane for all tests here. They skip, with the reason, only where none can be had."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.support.control_plane import Plane, binaries, running
from lab.support.extender_process import ExtenderProcess
from tests.conftest import TREE, AgentProcess

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and "plane" in getattr(item, "fixturenames", ()):
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


@pytest.fixture
def start_extender(cluster: Plane, tmp_path: Path) -> Iterator[Callable[..., ExtenderProcess]]:
    started: list[ExtenderProcess] = []

    def start(port: int = 0, **settings: object) -> ExtenderProcess:
        started.append(ExtenderProcess(tmp_path, cluster.kubeconfig("extender-token"), port, **settings))
        return started[-1].ready()

    yield start
    for one in started:
        one.stop(signal.SIGKILL)


def until_steady(read: Callable[[], object], quiet_s: float = 3.0, timeout_s: float = 60.0) -> object:
    """What `read` says once it has not changed for `quiet_s`."""
    value, since_s, deadline_s = read(), time.monotonic(), time.monotonic() + timeout_s
    while time.monotonic() - since_s < quiet_s:
        assert time.monotonic() < deadline_s, f"does not stay the same: {value}"
        time.sleep(0.2)
        if (now := read()) != value:
            value, since_s = now, time.monotonic()
    return value
