"""The API server's way to the kubelets of virtual machines: `python -m lab.cluster.kubelet_proxy SOCKET PORTS.json`.

A machine on QEMU's user network has no address that the host could connect to; its kubelet is a forwarded port of the
host's loopback. The API server sends what goes to nodes (kubectl logs, exec, port-forward) here with HTTP CONNECT, as
its EgressSelectorConfiguration says. PORTS.json has the forwarded port of each node name; all other addresses
(webhooks) are connected to as they are.
"""

import asyncio
import json
import sys
from pathlib import Path

READ_BYTES = 1 << 16


def address(request: bytes, ports: dict[str, int]) -> tuple[str, int]:
    """
    >>> address(b"CONNECT real-1:10250 HTTP/1.1\\r\\n\\r\\n", {"real-1": 40001})
    ('127.0.0.1', 40001)
    >>> address(b"CONNECT 127.0.0.1:9751 HTTP/1.1\\r\\n\\r\\n", {})
    ('127.0.0.1', 9751)
    """
    host, _, port = request.split()[1].decode().rpartition(":")
    return ("127.0.0.1", ports[host]) if host in ports else (host.strip("[]"), int(port))


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(READ_BYTES):
            target.write(data)
            await target.drain()
    except ConnectionError:
        pass  # one side is gone; the other one is told by the close below
    finally:
        target.close()


async def serve(socket: str, table: Path) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            ports = json.loads(table.read_text()) if table.exists() else {}
            there = await asyncio.open_connection(*address(request, ports))
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            writer.write(f"HTTP/1.1 502 {type(error).__name__}\r\n\r\n".encode())
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    server = await asyncio.start_unix_server(connected, socket)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
