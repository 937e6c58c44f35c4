"""Connections that never shake hands: limited from accept on, and gone within seconds."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from aiohttp import web

from carico_agent.extender.daemon import webhook_tls
from carico_agent.lib.net.http import HttpServer, answer
from carico_agent.lib.net.limits import Limits, RateLimiter
from carico_agent.lib.net.tls import TlsFiles, server_context
from carico_agent.settings import ExtenderSettings

MOST = 10
BOUND_S = 60.0
"""Only a hang reaches it."""


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here")
    made = TlsFiles(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        f"-out {made.cert} -keyout {made.key}".split(),
        check=True,
        capture_output=True,
    )
    return made


async def hello(request: web.BaseRequest) -> web.StreamResponse:
    """hello"""
    return answer({"hello": 1})


async def serve(files: TlsFiles) -> tuple[HttpServer, int]:
    server = HttpServer({"/": {"GET": hello}}, RateLimiter(Limits(MOST, 0)))
    await server.listen("127.0.0.1", 0, server_context(files))
    return server, server.port


async def closed(reader: asyncio.StreamReader) -> bool:
    """Whether the other side has closed; False while it waits for us."""
    try:
        return await asyncio.wait_for(reader.read(1), 0.3) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


async def test_they_are_counted_from_accept_on(files: TlsFiles) -> None:
    server, port = await serve(files)
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
    gone = await asyncio.gather(*(closed(reader) for reader, _ in held))
    assert gone.count(False) == MOST
    assert server.accepted.refused["connections"] == 60 - MOST
    for _, writer in held:
        writer.close()
    await server.stop()


async def test_those_who_only_hold_on_are_dropped_and_others_served(
    files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carico_agent.lib.net.handshake.HANDSHAKE_S", 0.5)
    server, port = await serve(files)
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST)]
    async with asyncio.timeout(BOUND_S):
        for reader, writer in held:
            assert await reader.read(1) == b""  # until the server has had enough
            writer.close()
    context = ssl.create_default_context(cafile=files.cert)
    async with asyncio.timeout(BOUND_S):
        for _ in range(3 * MOST):  # places are given back
            reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b'{"hello":1}' in await reader.read()
            writer.close()
            await writer.wait_closed()
        while len(server.accepted):  # the last one is noticed in its own time
            await asyncio.sleep(0.01)
    await server.stop()


@pytest.mark.parametrize("required", [False, True])
async def test_the_admission_webhook_can_require_client_certificates(files: TlsFiles, required: bool) -> None:
    """A request without one is not even read; whoever has one that the authority signed is answered."""
    settings = ExtenderSettings(
        tls_cert=files.cert, tls_key=files.key, admission_client_ca=files.cert if required else ""
    )
    server = HttpServer({"/": {"GET": hello}}, RateLimiter(Limits(MOST, 0)))
    await server.listen("127.0.0.1", 0, webhook_tls(settings))
    nobody, somebody = (ssl.create_default_context(cafile=files.cert) for _ in range(2))
    somebody.load_cert_chain(files.cert, files.key)
    answers = []
    for context in (nobody, somebody):
        reader, writer = await asyncio.open_connection("localhost", server.port, ssl=context)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        try:
            answers.append(b'{"hello":1}' in await reader.read())
        except (ssl.SSLError, ConnectionError):  # with TLS 1.3 the client learns of it after its own handshake
            answers.append(False)
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    assert answers == [not required, True]
    await server.stop()
