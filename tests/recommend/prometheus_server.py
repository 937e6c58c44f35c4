"""A real Prometheus in a temporary folder: filled by promtool, or scraping an exporter of real processes."""

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


def need(*tools: str) -> list[str]:
    """Paths of the tools, or the test is skipped with the reason."""
    cache = Path.home() / ".cache/carico/tools/usr/bin"
    found = [shutil.which(tool) or shutil.which(tool, path=str(cache)) for tool in tools]
    if None in found:
        pytest.skip(f"{tools[found.index(None)]} is not here: `make tools` unpacks Debian's prometheus package")
    return [path for path in found if path]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """`prometheus` with its own storage; gone when closed."""

    def __init__(
        self, folder: Path, *flags: str, scrape: int | None = None, interval: str = "100ms", path: str = "/metrics"
    ) -> None:
        (binary,) = need("prometheus")
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        job = {"job_name": "cadvisor", "metrics_path": path, "static_configs": [{"targets": [f"127.0.0.1:{scrape}"]}]}
        jobs = [job] if scrape else []
        config = {"global": {"scrape_interval": interval, "scrape_timeout": interval}, "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(json.dumps(config))
        self._log = (folder / "prometheus.log").open("wb")
        command = [binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        self._process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn", *flags],
            stdout=self._log,
            stderr=self._log,
            cwd=folder,
        )
        self._until(lambda: urllib.request.urlopen(f"{self.url}/-/ready", timeout=5).status == 200)

    def _until(self, ready: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            assert self._process.poll() is None, Path(self._log.name).read_text()
            try:
                if ready():
                    return
            except (OSError, urllib.error.HTTPError):
                pass
            time.sleep(0.05)
        raise AssertionError("prometheus does not answer")

    def samples(self, metric: str) -> int:
        """The least number of points any series of that metric has in the last five minutes."""
        url = f"{self.url}/api/v1/query?query=min(count_over_time({metric}%5B5m%5D))"
        result = json.load(urllib.request.urlopen(url, timeout=10))["data"]["result"]
        return int(result[0]["value"][1]) if result else 0

    def wait_for(self, metric: str, count: int) -> None:
        self._until(lambda: self.samples(metric) >= count, 120.0)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._log.close()


def fill(folder: Path, lines: Iterable[str]) -> None:
    """Blocks of history, as promtool makes them from OpenMetrics text."""
    (promtool,) = need("promtool")
    text = folder / "history.txt"
    text.write_text("\n".join([*lines, "# EOF", ""]))
    done = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


class Exporter:
    """Serves what `text` gives on /metrics."""

    def __init__(self, text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
