import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from containerd import PrivateContainerd, missing


@pytest.fixture
def containerd() -> Iterator[PrivateContainerd]:
    """A private containerd, gone with all it started when the test ends."""
    if reason := missing():
        pytest.skip(reason)
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as private:
        yield private


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that must come true; how long it takes is not the question."""
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, "did not come true"
        await asyncio.sleep(0.01)
