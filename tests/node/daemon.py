"""The plugin host on a real node without the rest of the agent: runtime, view, plugins; its answers go to a file.

Runs in the guest as a systemd service. SIGTERM ends it the way the agent ends: plugins stop, everything is put back.
"""

import asyncio
import json
import logging
import signal
import sys
import time
from pathlib import Path

from carico_agent.plugin_host.host import Host
from carico_agent.plugin_host.view import ViewMaker
from carico_agent.runtime.watch import discover
from carico_agent.settings import load

ANSWERS = Path("/run/carico-answers.json")


async def life(config: str) -> None:
    settings = load(config)
    runtime = discover(settings)
    usage: dict = {}
    host = Host(settings.plugins, ViewMaker(lambda: runtime.pods, lambda: usage), settings.journal_path)
    for item in host.start():
        print("at start:", item.entry.knob.cgroup, item.entry.knob.key, item.how, flush=True)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    following = asyncio.create_task(runtime.run())
    while not stopping.is_set():
        usage = dict(runtime.read_usage(time.monotonic()))
        answers = {name: host.answer(name, {"request_ms": "500"}) for name in host.runners}
        fresh = ANSWERS.with_suffix(".new")
        fresh.write_text(json.dumps({"overview": host.overview(), "answers": answers, "pods": sorted(runtime.pods)}))
        fresh.replace(ANSWERS)
        await asyncio.wait([asyncio.create_task(stopping.wait())], timeout=0.5)
    following.cancel()
    for item in host.stop():
        print("at stop:", item.entry.knob.cgroup, item.entry.knob.key, item.how, flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    asyncio.run(life(sys.argv[1]))
