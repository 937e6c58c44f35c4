"""`carico page`: who may read what, and that nothing but reading is possible."""

import json
import subprocess
from pathlib import Path

import pytest

from carico_agent.cli import main
from carico_agent.lib.page.files import HEADERS, READ_PATHS
from tests.lib.page.conftest import OpenPage, Sample


def curl(url: str, *arguments: str) -> tuple[int, str]:
    command = ["curl", "-sS", "-w", "\n%{http_code}", *arguments, url]
    body, _, code = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rpartition("\n")
    return int(code), body


def test_numbers_need_the_token_and_files_do_not(sample: Sample, open_page: OpenPage) -> None:
    sample.start()
    base, _, token = open_page(sample.socket).partition("#token=")
    for path in READ_PATHS:
        path = path.replace("{id}", "throttling")
        assert curl(f"{base}{path[1:]}")[0] == 401, path
        assert curl(f"{base}{path[1:]}?token={token}")[0] == 401, "never in an address"
    wrong = ("-H", "Authorization: Bearer " + "x" * len(token))
    assert curl(f"{base}v1/status", *wrong)[0] == 401
    right = ("-H", f"Authorization: Bearer {token}")
    assert json.loads(curl(f"{base}v1/status", *right)[1])["node"] == "node-7"
    assert len(json.loads(curl(f"{base}v1/history", *right)[1])["time_s"]) == 900
    assert json.loads(curl(f"{base}v1/plugins/throttling", *right)[1])["report"]["pods"]
    code, page = curl(base)
    assert code == 200
    assert "The numbers need the token" in page and "node-7" not in page
    assert "node-7" in curl(base, *right)[1]
    assert curl(f"{base}app.js")[0] == 200


def test_only_reading_of_the_known_paths(sample: Sample, open_page: OpenPage) -> None:
    sample.start()
    base = open_page(sample.socket, "--no-token")
    assert curl(f"{base}v1/status")[0] == 200
    assert curl(f"{base}v1/reservations", "-d", '{"pods": 1, "ttl_s": 5}')[0] == 405
    assert curl(f"{base}v1/reload", "-X", "POST")[0] == 404
    assert curl(f"{base}healthz")[0] == 404
    for path in ("..%2f..%2fsetup.cfg", "static/app.js", "../__init__.py", "index.html", "v1/plugins/..%2fself"):
        assert curl(f"{base}{path}", "--path-as-is")[0] == 404, path


def test_a_foreign_name_for_this_machine_is_refused(sample: Sample, open_page: OpenPage) -> None:
    sample.start()
    base = open_page(sample.socket, "--no-token")
    for name in ("evil.example", "evil.example:80", "127.0.0.1.evil.example:80", "", "[::1"):
        for path in ("", "app.js", "v1/status"):
            assert curl(f"{base}{path}", "-H", f"Host: {name}" if name else "Host;")[0] in (400, 403), (name, path)
    for name in ("localhost", "localhost:80", "[::1]:80", "127.0.0.1"):
        assert curl(f"{base}v1/status", "-H", f"Host: {name}")[0] == 200, name


def test_every_page_answer_has_the_headers(sample: Sample, open_page: OpenPage) -> None:
    sample.start()
    base = open_page(sample.socket, "--no-token")
    for path in ("", "app.js", "style.css", "icon.svg"):
        shown = curl(f"{base}{path}", "-i")[1]
        for name, value in HEADERS.items():
            assert f"{name}: {value}" in shown.replace("\r", ""), (path, name)
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy and "*" not in policy and "http" not in policy


def test_without_an_agent_it_says_so(tmp_path: Path, open_page: OpenPage) -> None:
    base = open_page(str(tmp_path / "none.sock"), "--no-token")
    code, body = curl(f"{base}v1/status")
    assert code == 502
    assert "is `carico agent` running?" in json.loads(body)["error"]
    code, page = curl(base)
    assert code == 200
    assert "is `carico agent` running?" in page


def test_a_port_that_is_taken(sample: Sample, open_page: OpenPage, capsys: pytest.CaptureFixture[str]) -> None:
    base = open_page(sample.socket, "--no-token")
    port = base.rstrip("/").rpartition(":")[2]
    assert main(["page", "--no-browser", "--port", port]) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err
    assert main(["page", "--port", "70000"]) == 2
