"""Real aggregator processes for the tests (and the bench)."""

import asyncio
import dataclasses
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from carico_agent.settings import AggregatorSettings

ROOT = Path(__file__).resolve().parents[2]

MAIN = """
import asyncio, json, logging, sys
from carico_agent.settings import AggregatorSettings
from carico_agent.federation.daemon import AggregatorDaemon
logging.basicConfig(level=logging.INFO, format="%(message)s")
given = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(sys.argv[1]).items()}
asyncio.run(AggregatorDaemon(AggregatorSettings(**given)).run(lambda address: print("ready", address, flush=True)))
"""


class Process:
    """An aggregator in a process of its own, listening on `address`."""

    def __init__(self, settings: AggregatorSettings, prefix: tuple[str, ...] = ()) -> None:
        self.settings, self.prefix = settings, prefix
        self.address = settings.listen

    async def start(self) -> "Process":
        self.child = await asyncio.create_subprocess_exec(
            *self.prefix,
            sys.executable,
            "-c",
            MAIN,
            json.dumps(dataclasses.asdict(self.settings)),
            cwd=ROOT,
            env={**os.environ, "GRPC_VERBOSITY": "NONE"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self.child.stdout is not None and self.child.stderr is not None
        self._log: list[str] = []
        self._logging = asyncio.create_task(self._read_log(self.child.stderr))
        line = (await asyncio.wait_for(self.child.stdout.readline(), 60)).decode().split()
        if line[:1] != ["ready"]:
            await self.child.wait()
            await self._logging
            raise RuntimeError(f"the aggregator did not start: {self.log()}")
        self.address = line[1]
        self.settings = dataclasses.replace(self.settings, listen=self.address)  # the same one after a restart
        return self

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self._log.append(line.decode(errors="replace"))

    def log(self) -> str:
        return "".join(self._log)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        if self.child.returncode is None:
            os.kill(self.child.pid, number)
        code = await asyncio.wait_for(self.child.wait(), 20)
        await self._logging
        return code

    async def restart(self, number: int = signal.SIGKILL) -> None:
        """End it and start it again on the same address."""
        await self.stop(number)
        await self.start()


@asynccontextmanager
async def aggregator(prefix: tuple[str, ...] = (), **settings: Any):
    process = Process(AggregatorSettings(**{"listen": "127.0.0.1:0", **settings}), prefix)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


async def until(check, seconds: float = 60.0, every: float = 0.05):
    """Wait for `check()` (a function or a coroutine function) to give something true, and give it back. Only a hang
    reaches the bound."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        value = check()
        value = await value if asyncio.iscoroutine(value) else value
        if value:
            return value
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s"
        await asyncio.sleep(every)
