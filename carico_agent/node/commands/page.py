"""open the node's page in a browser: the number, why it is not larger, and what uses the node

Serves the page on loopback while it runs, and forwards the page's requests to the agent's socket. The address
has a token: other users of this machine cannot read the page. Press Ctrl-C to leave.

examples:
  carico page
  carico page --no-browser --port 9751
  carico page --no-token --no-browser    also without scripts, for every user of this machine
"""

import argparse
import asyncio
import secrets
import sys
import webbrowser

from carico_agent.client import default_path
from carico_agent.command import add_socket, complain


def arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: any that is free)")
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    parser.add_argument("--no-token", action="store_true", help="let every user of this machine read the page")


def run(given: argparse.Namespace) -> int:
    if not 0 <= given.port <= 65535:
        complain(f"--port {given.port} is not between 0 and 65535")
        return 2
    try:
        asyncio.run(serve(given))
    except OSError as error:
        complain(error.strerror or str(error))  # it names the address
        return 1
    return 0


async def serve(given: argparse.Namespace) -> None:
    """Until cancelled (Ctrl-C)."""
    from carico_agent.lib.page.proxy import PageProxy  # aiohttp takes 0.2 s to load, and other commands need none

    token = "" if given.no_token else secrets.token_urlsafe(24)
    async with PageProxy(given.socket or default_path(), token) as proxy:
        port = await proxy.listen("127.0.0.1", given.port)
        address = f"http://127.0.0.1:{port}/" + (f"#token={token}" if token else "")
        print(address, flush=True)
        if not given.no_browser and not await asyncio.to_thread(webbrowser.open, address):
            print("carico found no browser here; open the address in one", file=sys.stderr)
        await asyncio.Event().wait()
