"""A real HTTP server: each request is some CPU time and a short answer. Prints its port; runs until it is killed."""

import asyncio
import sys
import time

from aiohttp import web

WORK_S = 0.004
"""CPU time of one request [s]."""


async def answer(request: web.Request) -> web.Response:
    until_s, total = time.thread_time() + WORK_S, 0
    while time.thread_time() < until_s:
        total += sum(range(200))
    return web.Response(text=f"{total}\n")


async def main() -> None:
    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = site._server
    assert isinstance(server, asyncio.Server)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
