"""An event loop whose clock jumps: minutes of waiting pass at once, in the order in which they would."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where nothing is ready, it is the time of the next timer. Only for tasks of this process: no sockets."""

    def __init__(self) -> None:
        super().__init__(_JumpingSelector(self))
        self.now_s = 1000.0

    def time(self) -> float:
        return self.now_s


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "all tasks wait for ever"
        self._loop.now_s += timeout
        return super().select(0)


def run(scene: Coroutine[Any, Any, T], monkeypatch: pytest.MonkeyPatch) -> T:
    """Run it to its end; `time.monotonic` and CLOCK_BOOTTIME are the loop's clock meanwhile."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, monkeypatch.context() as patch:
        loop = runner.get_loop()
        patch.setattr("time.monotonic", loop.time)
        patch.setattr("time.clock_gettime", lambda clock: loop.time())
        return runner.run(scene)
