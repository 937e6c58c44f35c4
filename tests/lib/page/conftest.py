"""A sample node, and `carico page` in front of it, as processes."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from carico_agent.client import AgentClient, AgentError, AgentUnavailable
from lab.support.browser import errors, open_browser
from tests.conftest import TREE


class Sample:
    """The sample node; may be ended and started again on the same socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "sample.sock")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "lab.support.sample_node", self.socket, *arguments]
        self.process = subprocess.Popen(command, cwd=TREE)
        client = AgentClient(self.socket)
        for _ in range(600):
            try:
                client.status()
                return
            except (AgentUnavailable, AgentError):
                assert self.process.poll() is None
                time.sleep(0.05)
        raise AssertionError("the sample node does not answer")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[Sample]:
    made = Sample(tmp_path)
    yield made
    made.stop()


OpenPage = Callable[..., str]


@pytest.fixture
def open_page() -> Iterator[OpenPage]:
    """`carico page` for a socket; gives the address it prints."""
    started: list[subprocess.Popen[str]] = []

    def start(socket: str, *arguments: str) -> str:
        command = [sys.executable, "-m", "carico_agent", "page", "--socket", socket, "--no-browser", *arguments]
        process = subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/(#token=[\w-]{32})?", address), address
        return address

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def browser(one_browser: Any) -> Any:
    """A new tab with an empty console: screen size, scripts and what the page remembers belong to the tab."""
    last = one_browser.current_window_handle
    one_browser.switch_to.new_window("tab")
    new = one_browser.current_window_handle
    one_browser.switch_to.window(last)
    one_browser.close()
    one_browser.switch_to.window(new)
    errors(one_browser)
    return one_browser
