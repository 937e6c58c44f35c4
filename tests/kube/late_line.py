"""A TCP line on which whatever the server says arrives later: for clients whose watches are behind."""

import asyncio
import json
import threading
from contextlib import suppress
from pathlib import Path

from lab.support.waiting import free_port


class LateLine:
    """Listens on a loopback `port` in a thread of its own, until `stop`; answers arrive `late_s` later."""

    def __init__(self, server_port: int, late_s: float) -> None:
        self._server_port, self._late_s, self.port = server_port, late_s, free_port()
        self._loop, ready = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10.0), "the line did not open"

    def kubeconfig(self, original: Path) -> Path:
        """The same, by way of this line."""
        config = json.loads(original.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        path = original.with_name(f"late-{self.port}-{original.name}")
        path.write_text(json.dumps(config))
        return path

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10.0)

    def _serve(self, ready: threading.Event) -> None:
        self._loop.run_until_complete(asyncio.start_server(self._connect, "127.0.0.1", self.port))
        self._loop.call_soon(ready.set)
        self._loop.run_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._server_port)
        await asyncio.gather(self._copy(reader, back, 0.0), self._copy(there, writer, self._late_s))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, late_s: float) -> None:
        with suppress(ConnectionError):  # whoever ends it, the other side hears it
            while chunk := await source.read(65536):
                self._loop.call_later(late_s, sink.write, chunk)
        self._loop.call_later(late_s, sink.close)
