"""Tokens that change: a file the kubelet rotates, or a credential plugin's answer. And when a certificate ends."""

import asyncio
import base64
import binascii
import json
import os
import time
from datetime import UTC, datetime
from typing import Any

from carico_agent.lib.kube.access import Access, Exec
from carico_agent.lib.kube.errors import BadAccess
from carico_agent.lib.net.times import parse_rfc3339

REREAD_S = 30.0
"""A projected token is replaced at 80 % of its life (of at least 10 minutes): half a minute is often enough."""

EARLY_S = 60.0
"""A plugin's credential is renewed this long before it ends."""

PLUGIN_DEADLINE_S = 30.0


class Credentials:
    """What to send with a request. `certificate` and `key` are set when a plugin gave a certificate."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._token = access.token
        self._until_s = -float("inf") if access.token_file or access.exec else float("inf")
        self._lock = asyncio.Lock()
        self.certificate = b""
        self.key = b""

    async def headers(self) -> dict[str, str]:
        if time.monotonic() >= self._until_s:
            async with self._lock:
                if time.monotonic() >= self._until_s:
                    await self._renew()
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def doubt(self) -> bool:
        """The server did not accept them (401): True if a new try may be worth it, because they will be renewed."""
        if self._access.token_file or self._access.exec:
            self._until_s = -float("inf")
            return True
        return False

    async def _renew(self) -> None:
        if self._access.exec:
            await self._ask_plugin(self._access.exec)
            return
        try:
            with open(self._access.token_file) as file:
                self._token = file.read().strip()
        except OSError as error:
            raise BadAccess(f"token {self._access.token_file}: {error.strerror}") from error
        self._until_s = time.monotonic() + REREAD_S

    async def _ask_plugin(self, plugin: Exec) -> None:
        answer = await _run(plugin)
        status = answer.get("status") or {}
        self._token = str(status.get("token") or "")
        self.certificate = str(status.get("clientCertificateData") or "").encode()
        self.key = str(status.get("clientKeyData") or "").encode()
        if not self._token and not self.certificate:
            raise BadAccess(f"credential plugin {plugin.command}: its answer has neither token nor certificate")
        self._until_s = time.monotonic() + _left_s(status.get("expirationTimestamp"))


async def _run(plugin: Exec) -> dict[str, Any]:
    request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": json.dumps(request)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise BadAccess(f"credential plugin {plugin.command}: {error.strerror}") from error
    try:
        out, err = await asyncio.wait_for(process.communicate(), PLUGIN_DEADLINE_S)
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise BadAccess(f"credential plugin {plugin.command}: no answer in {PLUGIN_DEADLINE_S:g} s") from error
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines()
        raise BadAccess(
            f"credential plugin {plugin.command} failed ({process.returncode}): {lines[-1] if lines else ''}"
        )
    try:
        answer: Any = json.loads(out)
    except ValueError as error:
        raise BadAccess(f"credential plugin {plugin.command}: its answer is not JSON") from error
    return answer if isinstance(answer, dict) else {}


def _left_s(timestamp: Any) -> float:
    """How long a plugin's credential may be used; without end when it names none."""
    if not timestamp:
        return float("inf")
    try:
        until_s = parse_rfc3339(str(timestamp))
    except ValueError:
        return REREAD_S
    return max(1.0, until_s - time.time() - EARLY_S)


def certificate_end(pem: bytes) -> datetime | None:
    """When a certificate ends; None if this is no certificate.

    Reads just enough DER to find Validity. Why by hand: the standard library shows a peer's certificate only, and the
    cryptography package costs 12 MB.
    """
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    try:
        der = base64.b64decode(pem.split(begin, 1)[1].split(end, 1)[0])
        certificate = _content(der, 0)[0]
        at = _content(der, certificate)[0]  # inside tbsCertificate
        if der[at] == 0xA0:  # [0] version
            at = _content(der, at)[1]
        for _ in range(3):  # serialNumber, signature, issuer
            at = _content(der, at)[1]
        not_before = _content(der, at)[0]
        start, stop = _content(der, _content(der, not_before)[1])
        text = der[start:stop].decode()
        return datetime.strptime(text if len(text) > 13 else _century(text), "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (IndexError, ValueError, binascii.Error):
        return None


def _century(text: str) -> str:
    """UTCTime has two digits for the year: 50 to 99 are of the last century (RFC 5280)."""
    return ("19" if int(text[:2]) >= 50 else "20") + text


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at `at` begins and ends."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size]), start + size
    if start + length > len(der):
        raise ValueError("cut off")
    return start, start + length
