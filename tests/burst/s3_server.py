"""As much of an S3 store as the steps meet: one bucket in memory that checks every signature by itself.

The check follows the description of Signature Version 4, not the code under test: it takes the headers that a request
names as signed and computes the signature anew.
"""

import hashlib
import hmac
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit

KEY, SECRET = "AKIDTEST", "secret of the tests"
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/s3/aws4_request, SignedHeaders=(\S+), Signature=(\w+)"
)


class SmallS3(ThreadingHTTPServer):
    """`objects` by key; `page`: how many keys one list has."""

    daemon_threads = True

    def __init__(self, page: int = 1000) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.page = page
        self.downloads: list[str] = []
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: SmallS3

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if not self._genuine(b""):
            return
        _, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        if not key:
            self._list(dict(parse_qsl(urlsplit(self.path).query)))
        elif key in self.server.objects:
            self.server.downloads.append(key)
            self._answer(200, self.server.objects[key])
        else:
            self._answer(404, b"<Code>NoSuchKey</Code>")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self._genuine(body):
            self.server.objects[unquote(self.path).lstrip("/").partition("/")[2]] = body
            self._answer(200, b"")

    def _list(self, query: dict[str, str]) -> None:
        keys = sorted(key for key in self.server.objects if key.startswith(query["prefix"]))
        begin = int(query.get("continuation-token", "0"))
        shown = keys[begin : begin + self.server.page]
        rows = "".join(f"<Contents><Key>{key}</Key></Contents>" for key in shown)
        end = begin + self.server.page
        more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < len(keys) else ""
        space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        self._answer(200, f"<ListBucketResult {space}>{rows}{more}</ListBucketResult>".encode())

    def _genuine(self, body: bytes) -> bool:
        found = AUTHORIZATION.fullmatch(self.headers.get("Authorization", ""))
        digest = hashlib.sha256(body).hexdigest()
        if found is None or found[1] != KEY or self.headers["x-amz-content-sha256"] != digest:
            self._answer(403, b"<Code>AccessDenied</Code>")
            return False
        parts = urlsplit(self.path)
        query = "&".join(f"{quote(k, safe='~')}={quote(v, safe='~')}" for k, v in sorted(parse_qsl(parts.query)))
        lines = "".join(f"{name}:{self.headers[name].strip()}\n" for name in found[4].split(";"))
        canonical = "\n".join([self.command, parts.path, query, lines, found[4], digest])
        scope = f"{found[2]}/{found[3]}/s3/aws4_request"
        text = "\n".join(
            ["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()]
        )
        key = ("AWS4" + SECRET).encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        if hmac.new(key, text.encode(), hashlib.sha256).hexdigest() != found[5]:
            self._answer(403, b"<Code>SignatureDoesNotMatch</Code>")
            return False
        return True

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
