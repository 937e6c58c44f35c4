"""A server on a unix socket that every user may open, in a process of its own: serves until killed.

python -m tests.lib.net.unix_process PATH
"""

import asyncio
import sys
from pathlib import Path

from carico_agent.lib.net.http import HttpServer


async def main(path: str) -> None:
    server = HttpServer({})
    await server.bind_unix(Path(path), mode=0o666)
    await server.serve()
    print("serving", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
