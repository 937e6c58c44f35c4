"""A read-only API server for `kubectl carico`, in a thread: lists in pages, rights per path, everything asked kept."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 2
"""Smaller than what is asked for: clients must follow `continue`."""


class KubeApi:
    """`lists` and `objects` by path; what is `forbidden` is answered with 403 as a real server words it."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {}
        self.objects: dict[str, Any] = {}
        self.forbidden: dict[str, str] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.url = ""

    def answer(self, method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        self.asked.append((method, path, query))
        if path in self.forbidden:
            message = f'User "eve" cannot list resource "{self.forbidden[path]}" in API group "" at the cluster scope'
            return 403, {"kind": "Status", "message": f"x is forbidden: {message}"}
        if path in self.objects:
            return 200, self.objects[path]
        if path not in self.lists:
            return 404, {"kind": "Status", "message": f"{path} not found"}
        start = int(query.get("continue", "0"))
        rest = {"continue": str(start + PAGE)} if start + PAGE < len(self.lists[path]) else {}
        return 200, {"metadata": {"resourceVersion": "1", **rest}, "items": self.lists[path][start : start + PAGE]}

    def kubeconfig(self, folder: Path, namespace: str = "shop") -> str:
        """YAML, as kubectl writes it."""
        file = folder / "kubeconfig"
        file.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
            f"clusters:\n- name: c\n  cluster:\n    server: {self.url}\n"
            f"contexts:\n- name: here\n  context:\n    cluster: c\n    namespace: {namespace}\n"
        )
        return str(file)


@contextmanager
def serving() -> Iterator[KubeApi]:
    api = KubeApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: texts[0] for name, texts in parse_qs(parts.query).items()}
            status, body = api.answer("GET", parts.path, query)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
