"""Loopback is not a right: other names, and other users of the machine."""

import asyncio
import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from aiohttp import web

from carico_agent.extender.daemon import ExtenderServer
from carico_agent.lib.net.http import HttpServer, answer
from carico_agent.lib.net.local_peers import peer_uid
from carico_agent.settings import parse

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


async def hello(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    return answer({"uid": peer_uid(request.transport)})


def asked(port: int, path: str, host: str = "", method: str = "GET", address: str = "127.0.0.1") -> tuple[int, str]:
    request = urllib.request.Request(
        f"http://{address}:{port}{path}", b"{}" if method == "POST" else None, {"Host": host} if host else {}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 403), ("evil.example:80", 403), ("169.254.169.254", 403), ("localhost", 200), ("[::1]:7", 200)],
)
async def test_a_listener_on_loopback_answers_under_its_own_names_only(host: str, status: int) -> None:
    """Issue 37, 19: a web page whose name was led to 127.0.0.1 could read everything there."""
    server = HttpServer({"/": {"GET": hello}})
    await server.listen("127.0.0.1", 0)
    try:
        assert (await asyncio.to_thread(asked, server.port, "/", host))[0] == status
        assert (await asyncio.to_thread(asked, server.port, "/"))[0] == 200
    finally:
        await server.stop()


CLIENT = """
import sys, socket
sock = socket.create_connection((sys.argv[1], int(sys.argv[2])))
sock.sendall(f"{sys.argv[3]} {sys.argv[4]} HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 2\\r\\n"
             "Connection: close\\r\\n\\r\\n{}".encode())
while piece := sock.recv(65536): sys.stdout.write(piece.decode())
"""


def asked_as(uid: int, port: int, method: str, path: str, address: str = "127.0.0.1") -> str:
    command = ["/usr/bin/python3", "-I", "-c", CLIENT, address, str(port), method, path]
    done = subprocess.run(command, user=uid, capture_output=True, text=True, check=True, cwd="/")
    return done.stdout


@AS_ROOT
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="a Python that every user may run")
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9", "::ffff:127.0.0.1"])
async def test_the_kernel_says_which_user_is_at_the_other_end(address: str) -> None:
    server = HttpServer({"/": {"GET": hello}})
    await server.listen("0.0.0.0", 0)
    try:
        for uid in (0, NOBODY):
            said = await asyncio.to_thread(asked_as, uid, server.port, "GET", "/", address)
            assert f'"uid":{uid}' in said.replace(" ", ""), said
    finally:
        await server.stop()


@AS_ROOT
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="a Python that every user may run")
@pytest.mark.parametrize("users", [(), (NOBODY,)])
async def test_on_loopback_not_every_user_binds_pods(tmp_path: Path, users: tuple[int, ...]) -> None:
    """Issue 37, 19: any local POST to /bind was carried out."""
    config = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    settings = parse(
        {
            "kubernetes": {"kubeconfig": str(tmp_path / "kubeconfig")},
            "extender": {"listen": "127.0.0.1:0", "bind_users": list(users)},
        }
    )
    extender = ExtenderServer(settings)
    server = HttpServer(extender.routes())
    await server.listen("127.0.0.1", 0)
    try:
        as_nobody = await asyncio.to_thread(asked_as, NOBODY, server.port, "POST", "/bind")
        as_root = await asyncio.to_thread(asked_as, 0, server.port, "POST", "/bind")
        assert ("may not bind Pods" in as_nobody) == (not users)
        assert "may not bind Pods" not in as_root
    finally:
        await server.stop()
        await extender.client.close()
