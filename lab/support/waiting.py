"""Bounded waiting, and a port that is free."""

import socket
import time
from collections.abc import Callable
from typing import Any


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(ready: Callable[[], Any], what: str, timeout_s: float = 60.0, every_s: float = 0.1) -> Any:
    """Until `ready()` is true; the bound is generous, only a hang reaches it."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := ready()):
        assert time.monotonic() < deadline_s, f"not after {timeout_s:g} s: {what}"
        time.sleep(every_s)
    return value
