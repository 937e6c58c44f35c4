"""Who may do what on the socket of a real agent: clients are processes with other user ids."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carico_agent.client import AgentError
from carico_agent.lib.net.limits import Limits, Peer, RateLimiter
from carico_agent.settings import BadSettings, parse
from tests.conftest import TREE, AgentProcess

Start = Callable[..., AgentProcess]
NOBODY, OTHER, UNLISTED = 65534, 65533, 65532
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can pose as several users")

BECOME = """
import os
os.setgroups([])
os.setgid(int(sys.argv[3]))
os.setuid(int(sys.argv[2]))
"""
"""After the imports: this tree, and the Python in it, may be root's alone."""

ASK = """
import json, sys
from carico_agent.client import AgentClient, AgentError, AgentUnavailable
#BECOME
agent, seen = AgentClient(sys.argv[1]), []
for method, path, body in json.loads(sys.argv[4]):
    try:
        seen.append([200, agent.request(method, path, body)])
    except AgentError as error:
        seen.append([error.status, error.body])
    except AgentUnavailable as error:
        seen.append([0, str(error)])
print(json.dumps(seen))
"""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """pytest's folders are for one user, and every run sets that anew; the socket's group shall decide, not they."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def ask(process: AgentProcess, uid: int, *requests: tuple[str, str, object], gid: int = NOBODY) -> list[list[object]]:
    """The answers that user `uid` gets."""
    answers: list[list[object]] = json.loads(as_user(ASK, process.socket, uid, gid, json.dumps(requests)))
    return answers


def as_user(code: str, *arguments: object) -> str:
    command = [sys.executable, "-c", code.replace("#BECOME", BECOME), *map(str, arguments)]
    result = subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def start(start_agent: Start, tmp_path: Path, flags: list[str], extra: str = "") -> AgentProcess:
    """An agent whose socket the group of NOBODY may use."""
    os.chown(tmp_path, -1, NOBODY)
    config = tmp_path / "config.toml"
    config.write_text(f'[node]\nstate = "{tmp_path}/state"\n[socket]\ngroup = "nogroup"\n{extra}')
    if "--config" not in flags:
        flags = [*flags, "--config", str(config)]
    process = start_agent(*flags)
    process.wait(lambda agent: agent.status()["available"] >= 5 if "--replay" in flags else True)
    return process


@needs_root
def test_the_group_reads_and_reserves_but_only_root_reloads(
    start_agent: Start, tmp_path: Path, roomy: list[str]
) -> None:
    process = start(start_agent, tmp_path, roomy)
    wish = {"pods": 1, "ttl_s": 60, "holder": "me"}
    read, made, reload = ask(
        process, NOBODY, ("GET", "/v1/status", None), ("POST", "/v1/reservations", wish), ("POST", "/v1/reload", None)
    )
    assert (read[0], made[0]) == (200, 200)
    assert reload[0] == 403
    assert "for root and the agent's own user only, not for uid 65534" in str(reload[1])
    assert process.client().request("POST", "/v1/reload") == {"taken": [], "needs_restart": []}
    assert ask(process, UNLISTED, ("GET", "/v1/status", None), gid=UNLISTED)[0][0] == 0  # cannot even connect


@needs_root
def test_a_reservation_belongs_to_who_made_it(start_agent: Start, tmp_path: Path, roomy: list[str]) -> None:
    process = start(start_agent, tmp_path, roomy)
    made = ask(process, NOBODY, ("POST", "/v1/reservations", {"pods": 1, "ttl_s": 60}))[0][1]
    assert isinstance(made, dict)
    mine = ("DELETE", f"/v1/reservations/{made['id']}", None)
    assert ask(process, OTHER, mine)[0][0] == 403
    assert ask(process, NOBODY, mine)[0][0] == 200
    again = ask(process, NOBODY, ("POST", "/v1/reservations", {"pods": 1, "ttl_s": 60}))[0][1]
    assert isinstance(again, dict)
    process.client().request("DELETE", f"/v1/reservations/{again['id']}")  # root may


@needs_root
def test_limits_per_user(start_agent: Start, tmp_path: Path, roomy: list[str]) -> None:
    config = Path(roomy[-1])
    config.write_text(
        config.read_text() + "[clients]\nconnections = 3\nrequests_per_s = 5\nreserved_pods = 2\n"
        '[socket]\ngroup = "nogroup"\n'
    )
    os.chown(tmp_path, -1, NOBODY)
    process = start_agent(*roomy)
    process.wait(lambda agent: agent.status()["available"] >= 5)
    wish = ("POST", "/v1/reservations", {"pods": 1, "ttl_s": 60})
    got = ask(process, NOBODY, wish, wish, wish)
    assert [code for code, _ in got] == [200, 200, 429], got
    assert ask(process, OTHER, wish)[0][0] == 200  # another client has its own share
    assert ask(process, OTHER, ("POST", "/v1/reservations", {"pods": 2, "ttl_s": 60}))[0][0] == 429  # Pods are counted
    codes = [code for code, _ in ask(process, UNLISTED, *[("GET", "/v1/status", None)] * 30)]
    assert codes[:5] == [200] * 5
    assert 429 in codes
    for _ in range(30):
        process.client().status()  # root is not limited
    metrics = subprocess.run(
        ["curl", "-sS", "--unix-socket", process.socket, "http://localhost/metrics"], capture_output=True, text=True
    ).stdout
    refused = next(line for line in metrics.splitlines() if line.startswith('carico_refused_total{what="requests"}'))
    assert int(refused.split()[1]) == codes.count(429)


@needs_root
def test_one_user_cannot_hold_all_room(start_agent: Start, tmp_path: Path, roomy: list[str]) -> None:
    Path(roomy[-1]).write_text(Path(roomy[-1]).read_text() + '[socket]\ngroup = "nogroup"\n')
    os.chown(tmp_path, -1, NOBODY)
    process = start_agent(*roomy)
    room = process.wait(lambda agent: agent.status()["available"] >= 10).status()["available"]
    everything, one = ({"pods": pods, "ttl_s": 60} for pods in (room, 1))
    greedy = ask(process, NOBODY, ("POST", "/v1/reservations", everything), *[("POST", "/v1/reservations", one)] * room)
    codes = [code for code, _ in greedy]
    assert codes[0] == 429 and "may hold 80% of the room here" in str(greedy[0][1])
    assert codes.count(200) == int(0.8 * process.client().status()["pod_capacity"])
    assert ask(process, OTHER, ("POST", "/v1/reservations", one))[0][0] == 200


CROWD = """
import socket, sys
#BECOME
held, answers = [], []
for _ in range(6):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    connection.settimeout(0.5)
    held.append(connection)
    try:
        answers.append(connection.recv(1000).split(b" ")[1].decode())
    except TimeoutError:
        answers.append("open")
print(*answers)
"""


@pytest.mark.long
@needs_root
def test_too_many_connections_of_one_user(start_agent: Start, tmp_path: Path) -> None:
    process = start(start_agent, tmp_path, [], "[clients]\nconnections = 3\n")
    result = as_user(CROWD, process.socket, NOBODY, NOBODY)
    assert result.split() == ["open", "open", "open", "503", "503", "503"]
    assert process.client().status()
    assert ask(process, NOBODY, ("GET", "/v1/status", None))[0][0] == 200  # those that left count no more


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def curl(*arguments: str) -> tuple[str, str]:
    done = subprocess.run(["curl", "-sS", "-w", "\n%{http_code}", *arguments], capture_output=True, text=True)
    body, _, code = done.stdout.rpartition("\n")
    return code, body


def test_loopback_is_for_reading(start_agent: Start, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "c.toml").write_text(f'[listen]\naddress = "127.0.0.1:{port}"\n')
    start_agent("--config", str(tmp_path / "c.toml")).wait()
    url = f"http://127.0.0.1:{port}"
    assert curl(f"{url}/v1/status")[0] == "200"
    assert curl("-d", '{"pods": 1, "ttl_s": 5}', f"{url}/v1/reservations")[0] == "403"
    assert curl("-X", "POST", f"{url}/v1/reload")[0] == "403"


def certificate(folder: Path, name: str, issuer: str = "") -> None:
    subject = ["-subj", f"/CN={name}", "-days", "2", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    signed = ["-CA", f"{folder}/{issuer}.pem", "-CAkey", f"{folder}/{issuer}.key"] if issuer else []
    command = [
        "openssl",
        "req",
        "-x509",
        *subject,
        *signed,
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        f"{folder}/{name}.key",
        "-out",
        f"{folder}/{name}.pem",
    ]
    subprocess.run(command, check=True, capture_output=True)


def test_tls_with_client_certificates(start_agent: Start, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here")
    certificate(tmp_path, "ca")
    for name in ("agent", "scheduler"):
        certificate(tmp_path, name, "ca")
    port = free_port()
    (tmp_path / "c.toml").write_text(
        f'[listen]\naddress = "0.0.0.0:{port}"\ntls_cert = "{tmp_path}/agent.pem"\ntls_key = "{tmp_path}/agent.key"\n'
        f'tls_ca = "{tmp_path}/ca.pem"\n'
    )
    start_agent("--config", str(tmp_path / "c.toml")).wait()
    url, trust = f"https://127.0.0.1:{port}", ("--cacert", f"{tmp_path}/ca.pem")
    own = ("--cert", f"{tmp_path}/scheduler.pem", "--key", f"{tmp_path}/scheduler.key")
    assert curl(*trust, *own, f"{url}/v1/status")[0] == "200"
    assert curl(*trust, *own, "-d", '{"pods": 1, "ttl_s": 5}', f"{url}/v1/reservations")[0] in ("201", "409")
    assert curl(*trust, *own, "-X", "POST", f"{url}/v1/reload")[0] == "403"
    assert curl(*trust, f"{url}/v1/status")[0] == "000"
    assert curl(f"http://127.0.0.1:{port}/v1/status")[0] in ("000", "400")


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ({"address": "0.0.0.0:80"}, "not loopback"),
        ({"address": "node-1:80"}, "not loopback"),
        ({"address": "80"}, "not host:port"),
        ({"address": "0.0.0.0:80", "tls_cert": "x"}, "both are needed"),
        ({"address": "127.0.0.1:80", "tls_ca": "x"}, "both are needed"),
    ],
)
def test_plaintext_beyond_loopback_is_refused(listen: dict[str, str], why: str) -> None:
    with pytest.raises(BadSettings, match=why):
        parse({"listen": listen})


def test_loopback_addresses() -> None:
    for address in ("127.0.0.1:80", "localhost:80", "[::1]:80"):
        assert parse({"listen": {"address": address}}).listen.address == address


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    limiter = RateLimiter(Limits(connections=1, requests_per_s=1))
    for number in range(5000):
        peer = Peer(f"uid {number}")
        assert limiter.connect(peer)
        assert limiter.request(peer, number / 10) == 0.0
        limiter.disconnect(peer)
    assert len(limiter._buckets) <= 257
    assert not limiter._connections


def test_the_agent_error_names_the_status(start_agent: Start) -> None:
    agent = start_agent().wait()
    with pytest.raises(AgentError) as wrong:
        agent.request("POST", "/v1/reservations", {"pods": 1})
    assert wrong.value.status == 400
