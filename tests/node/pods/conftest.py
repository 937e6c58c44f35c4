import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.node.pods.watch import Runtime, discover
from carico_agent.settings import Settings
from lab.support.containerd import NEWER, PrivateContainerd, missing, missing_newer


@pytest.fixture(params=["installed", "2.x"])
def containerd(request: pytest.FixtureRequest) -> Iterator[PrivateContainerd]:
    """A private containerd, gone with all it started when the test ends: this machine's, and a 2.x."""
    newer = request.param == "2.x"
    if reason := missing_newer() if newer else missing():
        pytest.skip(reason)
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-")), NEWER if newer else None) as private:
        yield private


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that must come true; how long it takes is not the question."""
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, "did not come true"
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(config: Settings) -> AsyncIterator[Runtime]:
    """A runtime at work, as the supervisor would run it."""
    runtime = discover(config, Backoff(first_s=0.05, max_s=0.2))
    task = asyncio.create_task(runtime.run())
    try:
        yield runtime
        assert not task.done(), "run() must not end"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
