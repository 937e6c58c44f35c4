"""Who may ask the admission webhook: it must be chosen, and a secret in the path must be right."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from carico_agent.extender.daemon import admission_routes
from carico_agent.lib.net.http import HttpServer, answer
from carico_agent.settings import ExtenderSettings

LISTEN = "127.0.0.1:0"


async def admitted(request: web.BaseRequest) -> web.StreamResponse:
    """admitted"""
    return answer({"admitted": True})


def test_it_does_not_start_open_to_all_unless_told_so() -> None:
    with pytest.raises(ValueError, match="any client could ask to hold places"):
        admission_routes(ExtenderSettings(admission_listen=LISTEN), admitted)
    for chosen in ({"admission_anyone": True}, {"admission_client_ca": "/ca.crt"}):
        assert "/admit" in admission_routes(ExtenderSettings(admission_listen=LISTEN, **chosen), admitted)
    assert "/admit" in admission_routes(ExtenderSettings(), admitted)  # nothing listens


@pytest.mark.parametrize("secret", ["", "short", "0123456789abcde/", "0123456789abcdé0", "0123 456789abcdef"])
def test_a_secret_that_is_none_is_refused(tmp_path: Path, secret: str) -> None:
    (tmp_path / "token").write_text(secret)
    settings = ExtenderSettings(admission_listen=LISTEN, admission_token_file=str(tmp_path / "token"))
    with pytest.raises(ValueError, match="at least 16 letters or digits"):
        admission_routes(settings, admitted)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/admit/0123456789abcdef", 200), ("/admit/0123456789abcdeF", 403), ("/admit/%C3%A9", 403), ("/admit", 404)],
)
async def test_only_the_right_path_is_answered(tmp_path: Path, path: str, status: int) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    settings = ExtenderSettings(admission_listen=LISTEN, admission_token_file=str(tmp_path / "token"))
    server = HttpServer(admission_routes(settings, admitted))
    await server.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
    said = await reader.read()
    assert int(said.split()[1]) == status
    assert b"0123456789abcdef" not in said
    writer.close()
    await server.stop()
