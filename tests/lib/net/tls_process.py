"""A TLS server in a process of its own, so that its memory and CPU can be read: prints its port, serves until killed.

python -m tests.lib.net.tls_process CERT KEY CONNECTIONS
"""

import asyncio
import sys

from aiohttp import web

from carico_agent.lib.net.http import HttpServer, answer
from carico_agent.lib.net.limits import Limits, RateLimiter
from carico_agent.lib.net.tls import TlsFiles, server_context


async def hello(request: web.BaseRequest) -> web.StreamResponse:
    """hello"""
    return answer({"hello": 1})


async def main(cert: str, key: str, connections: int, handshakes_per_s: float = 0, all_per_s: float = 0) -> None:
    limits = Limits(
        connections,
        0,
        handshakes_per_s=handshakes_per_s,
        all_handshakes_per_s=all_per_s,
        max_connections=connections,
    )
    server = HttpServer({"/": {"GET": hello}}, RateLimiter(limits))
    await server.listen("127.0.0.1", 0, server_context(TlsFiles(cert, key)))
    print(server.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(float, sys.argv[4:])))
