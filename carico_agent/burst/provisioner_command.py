"""The frame of a shipped provisioner: one JSON request on standard input, one report on standard output."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import KubeError

VERBS = ("scale", "delete", "status")


def speak(name: str, act: Callable[[Object], Awaitable[Object]]) -> int:
    """Carry out the request; the exit status. What goes wrong is one line on standard error."""

    async def answer() -> Object:
        request = json.load(sys.stdin)
        if request["verb"] not in VERBS:
            raise ValueError(f"verb {request['verb']!r}")
        return await act(request)

    try:
        report = asyncio.run(answer())
    except (KubeError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"carico {name}: {error}\n")
        return 1
    sys.stdout.write(json.dumps(report) + "\n")
    return 0
