"""The page served by the agent itself: `[page] listen`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from carico_agent.lib.page.access import read_token
from carico_agent.settings import BadSettings, parse
from tests.conftest import AgentProcess
from tests.node.test_socket_security import certificate, curl, free_port

Start = Callable[..., AgentProcess]
TOKEN = "a-token-of-enough-letters"


def test_loopback_without_a_token(start_agent: Start, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "c.toml").write_text(f'[page]\nlisten = "127.0.0.1:{port}"\n')
    agent = start_agent("--config", str(tmp_path / "c.toml")).wait()
    url = f"http://127.0.0.1:{port}"
    code, page = curl(f"{url}/")
    assert code == "200"
    assert f"Node {agent.status()['node']}" in page
    for path in ("status", "history", "pods", "workloads", "reservations", "plugins", "self"):
        assert curl(f"{url}/v1/{path}")[0] == "200", path
    assert curl("-d", '{"pods": 1, "ttl_s": 5}', f"{url}/v1/reservations")[0] == "405"
    assert curl("-X", "POST", f"{url}/v1/reload")[0] == "404"
    assert curl(f"{url}/metrics")[0] == "404"
    assert curl("-H", "Host: evil.example", f"{url}/v1/status")[0] == "403"
    assert agent.request("GET", "/v1/self")["publishers"]["page"]["condition"] == f"at 127.0.0.1:{port}"


def test_beyond_loopback_with_tls_and_a_token(start_agent: Start, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here")
    certificate(tmp_path, "agent")
    port, token = free_port(), tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    (tmp_path / "c.toml").write_text(
        f'[page]\nlisten = "0.0.0.0:{port}"\ntoken_file = "{token}"\n'
        f'tls_cert = "{tmp_path}/agent.pem"\ntls_key = "{tmp_path}/agent.key"\n'
    )
    process = start_agent("--config", str(tmp_path / "c.toml"))
    process.wait()
    url, trust = f"https://127.0.0.1:{port}", ("--cacert", f"{tmp_path}/agent.pem")
    assert curl(*trust, f"{url}/app.js")[0] == "200"
    assert curl(*trust, f"{url}/v1/status")[0] == "401"
    assert curl(*trust, "-H", f"Authorization: Bearer {TOKEN}x", f"{url}/v1/status")[0] == "401"
    code, body = curl(*trust, "-H", f"Authorization: Bearer {TOKEN}", f"{url}/v1/status")
    assert code == "200"
    assert json.loads(body)["sequence"] > 0
    assert curl(f"http://127.0.0.1:{port}/v1/status")[0] in ("000", "400")
    assert TOKEN not in process.log.read_text()


def test_the_page_is_off_by_default(start_agent: Start) -> None:
    agent = start_agent().wait()
    assert "page" not in agent.request("GET", "/v1/self")["publishers"]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ({"listen": "0.0.0.0:80"}, "page.tls_cert, page.tls_key, page.token_file is needed"),
        ({"listen": "node-1:80", "tls_cert": "x", "tls_key": "x"}, "page.token_file is needed"),
        ({"listen": "127.0.0.1:80", "tls_cert": "x"}, "both are needed"),
        ({"listen": "80"}, "not host:port"),
    ],
)
def test_what_others_could_read_is_refused(page: dict[str, str], why: str) -> None:
    with pytest.raises(BadSettings, match=why):
        parse({"page": page})


def test_a_token_file_must_be_private_and_long_enough(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    with pytest.raises(PermissionError, match="chmod o-r"):
        read_token(str(file))
    file.chmod(0o640)
    assert read_token(str(file)) == TOKEN
    for bad in ("short", "two words of enough letters", "ümlaut" * 5):
        file.write_text(bad)
        with pytest.raises(OSError, match="at least 16"):
            read_token(str(file))
