"""Objects in an S3-compatible bucket, with the standard library alone: the steps of a Job run in a small image.

Four requests are enough: list, read, write and their signature (AWS Signature Version 4). Redirects are not followed: a
redirect would carry the signature to another server. One object is one PUT, so a model has at most 5 GB.
"""

import hashlib
import hmac
import os
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import IO, cast
from xml.etree import ElementTree

TIMEOUT_S = 60.0
MAX_TEXT_BYTES = 4_000_000
EMPTY = hashlib.sha256(b"").hexdigest()


class StoreError(OSError):
    """The store does not answer, or refuses."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True)
class S3Store:
    """One bucket. Keys of credentials have the names that every S3 tool reads from its environment."""

    bucket: str
    endpoint: str
    region: str = "us-east-1"
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    def keys(self, prefix: str) -> list[str]:
        """All keys that begin so, in order."""
        found: list[str] = []
        query = {"list-type": "2", "prefix": prefix}
        while True:
            page = ElementTree.fromstring(self._text("", query))
            space = page.tag.partition("}")[0] + "}" if page.tag.startswith("{") else ""
            found += [one.text or "" for one in page.iterfind(f"{space}Contents/{space}Key")]
            token = page.findtext(f"{space}NextContinuationToken")
            if not token:
                return found
            query["continuation-token"] = token

    def read(self, key: str) -> bytes:
        return self._text(key, {})

    def write(self, key: str, data: bytes) -> None:
        with self._open("PUT", key, {}, hashlib.sha256(data).hexdigest(), data):
            pass

    def download(self, key: str, to: Path) -> None:
        with self._open("GET", key, {}, EMPTY) as answer, to.open("wb") as file:
            shutil.copyfileobj(answer, file, 1 << 20)

    def upload(self, key: str, path: Path, sha256: str) -> None:
        with path.open("rb") as file, self._open("PUT", key, {}, sha256, file, path.stat().st_size):
            pass

    def _text(self, key: str, query: dict[str, str]) -> bytes:
        with self._open("GET", key, query, EMPTY) as answer:
            return answer.read(MAX_TEXT_BYTES)

    def _open(
        self,
        method: str,
        key: str,
        query: dict[str, str],
        sha256: str,
        data: bytes | IO[bytes] | None = None,
        size: int | None = None,
    ) -> HTTPResponse:
        path = f"/{self.bucket}/{urllib.parse.quote(key)}"
        pairs = urllib.parse.urlencode(sorted(query.items()), quote_via=urllib.parse.quote)
        request = urllib.request.Request(f"{self.endpoint}{path}" + (f"?{pairs}" if pairs else ""), data, method=method)
        headers = self._signed(method, path, pairs, sha256, time.gmtime())
        for name, value in (headers | ({"Content-Length": str(size)} if size is not None else {})).items():
            request.add_header(name, value)
        try:
            return cast(HTTPResponse, urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S))
        except urllib.error.HTTPError as error:
            text = error.read(300).decode(errors="replace")
            raise StoreError(f"{method} {self.url}/{key}: {error.code} {text}") from error
        except OSError as error:
            raise StoreError(f"{method} {self.url}/{key}: {error}") from error

    def _signed(self, method: str, path: str, pairs: str, sha256: str, now: time.struct_time) -> dict[str, str]:
        host = urllib.parse.urlsplit(self.endpoint).netloc
        stamp, day = time.strftime("%Y%m%dT%H%M%SZ", now), time.strftime("%Y%m%d", now)
        headers = {"host": host, "x-amz-content-sha256": sha256, "x-amz-date": stamp}
        if token := self.environ.get("AWS_SESSION_TOKEN"):
            headers["x-amz-security-token"] = token
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        canonical = f"{method}\n{path}\n{pairs}\n{lines}\n{names}\n{sha256}"
        scope = f"{day}/{self.region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self.environ.get('AWS_SECRET_ACCESS_KEY', '')}".encode()
        for part in (day, self.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        who = f"{self.environ.get('AWS_ACCESS_KEY_ID', '')}/{scope}"
        return headers | {
            "Authorization": f"AWS4-HMAC-SHA256 Credential={who}, SignedHeaders={names}, Signature={signature}"
        }
