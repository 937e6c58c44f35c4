"""The client against a scripted server: what a real one does only on bad days."""

import asyncio
import base64
import errno
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from carico_agent.lib.kube.access import Access, Exec, from_kubeconfig, in_cluster
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.clock import describe
from carico_agent.lib.kube.credentials import certificate_end
from carico_agent.lib.kube.errors import BadAccess, Refused, Unreachable
from carico_agent.lib.kube.health import Health
from carico_agent.lib.kube.lists import ListReader
from carico_agent.lib.kube.watch import NO_SUCH_NAME, ResourceWatch
from carico_agent.lib.kubernetes import examine
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.node.publish.pace import count_nodes
from carico_agent.settings import KubernetesSettings
from lab.support.waiting import free_port

FAST = Backoff(first_s=0.01, factor=2.0, max_s=0.05)


class Script:
    """A server that gives prepared answers, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[web.BaseRequest] = []
        self.answer: Callable[[web.BaseRequest], Any] = lambda request: web.json_response({})
        self.port = free_port()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._http = web.Server(self._handle)
        self._server = await asyncio.get_running_loop().create_server(self._http, "127.0.0.1", self.port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._http.shutdown(0.1)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request)
        answer = self.answer(request)
        return await answer if asyncio.iscoroutine(answer) else answer

    def access(self, **more: Any) -> Access:
        return Access(f"http://127.0.0.1:{self.port}", **more)


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    script = Script()
    await script.start()
    yield script
    await script.stop()


def tokens(script: Script) -> list[str]:
    return [request.headers.get("Authorization", "").removeprefix("Bearer ") for request in script.asked]


async def test_a_rotated_token_is_read_again_after_401(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")

    def answer(request: web.BaseRequest) -> web.Response:
        good = request.headers["Authorization"] == "Bearer new"
        return web.json_response({"workload": "x"}, status=200 if good else 401)

    script.answer = answer
    async with KubeClient(script.access(token_file=str(file))) as client:
        with pytest.raises(Refused, match="does not accept these credentials"):
            await client.get("/x")
        file.write_text("new\n")
        assert await client.get("/x") == {"workload": "x"}
        assert tokens(script) == ["old", "old", "old", "new"]  # each was refused once and tried again with what is read


async def test_exec_plugin(script: Script, tmp_path: Path) -> None:
    code = (
        "import json, os; info = json.loads(os.environ['KUBERNETES_EXEC_INFO']); "
        "print(json.dumps({'apiVersion': info['apiVersion'], 'kind': 'ExecCredential', "
        "'status': {'token': os.environ['WHO'], 'expirationTimestamp': '2999-01-01T00:00:00Z'}}))"
    )
    plugin = Exec(sys.executable, ("-c", code), {"WHO": "plugged"})
    async with KubeClient(script.access(exec=plugin)) as client:
        await client.get("/x")
        await client.get("/x")
    assert tokens(script) == ["plugged", "plugged"]
    for command, what in (("/no/such/plugin", "No such file"), ("/bin/false", "failed"), ("/bin/echo", "not JSON")):
        async with KubeClient(script.access(exec=Exec(command))) as client:
            with pytest.raises(BadAccess, match=what):
                await client.get("/x")


async def test_retry_after_pauses_the_whole_client(script: Script) -> None:
    times: list[float] = []

    def answer(request: web.BaseRequest) -> web.Response:
        times.append(time.monotonic())
        busy = len(times) == 1
        return web.json_response({}, status=429 if busy else 200, headers={"Retry-After": "0.5"} if busy else {})

    script.answer = answer
    async with KubeClient(script.access()) as client:
        with pytest.raises(Refused) as refused:
            await client.get("/x")
        assert refused.value.retry_after_s == 0.5
        await asyncio.gather(*(client.get("/x") for _ in range(5)))
    assert times[1] - times[0] >= 0.45
    assert len(times) == 6


async def test_a_server_that_is_down_sees_one_try_at_a_time(script: Script) -> None:
    await script.stop()
    async with KubeClient(
        script.access(), retry_delays=Backoff(first_s=0.2, factor=1.0, max_s=0.2, jitter_ratio=0)
    ) as client:

        async def until_it_works() -> None:
            while True:
                try:
                    await client.get("/x")
                    return
                except Unreachable:
                    continue

        tasks = [asyncio.create_task(until_it_works()) for _ in range(10)]
        await asyncio.sleep(1.1)
        assert client.requests <= 10 + 7  # the first ones, sent before anybody knew, and then one per pause
        await script.start()
        await asyncio.gather(*tasks)
        assert len(script.asked) == 10


async def test_the_budget_holds(script: Script) -> None:
    async with KubeClient(script.access(), TokenBucket(per_s=20.0, burst=5)) as client:
        started_s = time.monotonic()
        await asyncio.gather(*(client.get("/x") for _ in range(15)))
        assert time.monotonic() - started_s >= 0.45


def a_pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


@pytest.mark.parametrize(
    ("off_s", "result"), [(0, ""), (-3, ""), (-60, "ahead of the API server's"), (60, "behind the API server's")]
)
async def test_a_clock_that_is_off_is_noticed(script: Script, off_s: int, result: str) -> None:
    date = formatdate(time.time() + off_s, usegmt=True)
    script.answer = lambda request: web.json_response({}, headers={"Date": date})
    async with KubeClient(script.access()) as client:
        await client.get("/version")
        assert (result in describe(client.clock_skew_s)) and bool(describe(client.clock_skew_s)) == bool(result)


@pytest.mark.parametrize(("off_s", "found"), [(0, []), (600, ["behind the API server's"])])
async def test_doctor_finds_a_clock_that_is_off(
    script: Script, off_s: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carico_agent.lib.kubernetes.access_of", lambda settings: script.access())
    script.answer = lambda request: web.json_response(
        {"status": {"allowed": True}, "items": [{}]}, headers={"Date": formatdate(time.time() + off_s, usegmt=True)}
    )
    rows = await examine(KubernetesSettings(), "n1")
    assert [text.partition(" s ")[2] for what, text, _ in rows if what == "clock"] == found


async def test_nodes_are_counted_also_where_a_page_does_not_say_how_many_remain(script: Script) -> None:
    def answer(request: web.BaseRequest) -> web.Response:
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        rest = {"continue": str(start + limit)} if start + limit < 1200 else {}
        return web.json_response({"metadata": rest, "items": [{}] * min(limit, 1200 - start)})

    script.answer = answer
    async with KubeClient(script.access()) as client:
        assert (await count_nodes(client), len(script.asked)) == (1200, 4)


async def test_watch_resumes_and_lists_again_after_410(script: Script) -> None:
    """The server: lists at 10, sends 11 and a bookmark 20, breaks off; then says 410; then lists at 30."""
    lists: list[list[str]] = []
    events: list[tuple[bool, str]] = []
    watched: list[str] = []
    asked: list[dict[str, str]] = []
    done = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            asked.append(dict(request.query))
            meta = {"resourceVersion": "30" if watched else "10"}
            return web.json_response({"metadata": meta, "items": [a_pod("a", 1), a_pod("b", 2)]})
        watched.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if len(watched) == 1:
            for line in ({"type": "ADDED", "object": a_pod("c", 11)}, {"type": "BOOKMARK", "object": a_pod("", 20)}):
                await response.write(json.dumps(line).encode() + b"\n")
            await response.write(b'{"type": "ADD')  # breaks off inside a line
        elif len(watched) == 2:
            line = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
            await response.write(json.dumps(line).encode() + b"\n")
        else:
            await response.write(json.dumps({"type": "DELETED", "object": a_pod("a", 31)}).encode() + b"\n")
            done.set()
        return response

    script.answer = answer
    async with KubeClient(script.access(), retry_delays=FAST) as client:
        watch = ResourceWatch(
            client,
            "/pods",
            lambda o: str(o["metadata"]["name"]),
            lists.append,
            lambda gone, name: events.append((gone, name)),
            Health("test"),
        )
        task = asyncio.create_task(watch.run())
        await asyncio.wait_for(done.wait(), 20)
        await asyncio.sleep(0.1)
        task.cancel()
    assert lists == [["a", "b"], ["a", "b"]]
    assert watched[:3] == ["10", "20", "30"]
    # Both from the watch cache: a page (limit) or a list without a version would be read from etcd.
    # Between them one name is asked for, after the watch that broke off: whether the store was set back meanwhile.
    first, probe, second = asked
    assert first == {"resourceVersion": "0"}
    assert second == {"resourceVersion": "20", "resourceVersionMatch": "NotOlderThan"}
    assert probe == NO_SUCH_NAME
    assert events == [(False, "c"), (True, "a")]


async def test_a_version_that_the_server_does_not_know_is_not_asked_for_again(script: Script) -> None:
    """An API server that was restored from a backup: 504, and then the newest that it has."""
    asked: list[dict[str, str]] = []
    listed = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" in request.query:
            line = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
            return web.Response(body=json.dumps(line).encode() + b"\n")
        asked.append(dict(request.query))
        if len(asked) == 2:
            return web.json_response({"message": "Too large resource version: 10, current: 3"}, status=504)
        listed.set() if len(asked) == 3 else None
        return web.json_response({"metadata": {"resourceVersion": "10"}, "items": None})

    script.answer = answer
    async with KubeClient(script.access(), retry_delays=FAST) as client:
        nothing: Callable[..., None] = lambda *given: None  # noqa: E731
        watch = ResourceWatch(client, "/pods", dict, nothing, nothing, Health("test"))
        task = asyncio.create_task(watch.run())
        await asyncio.wait_for(listed.wait(), 20)
        task.cancel()
    assert [query.get("resourceVersion") for query in asked[:3]] == ["0", "10", None]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_list_is_read_in_pieces_of_any_size(size: int) -> None:
    items = [a_pod(f"ü\u20ac{n}", n) | {"items": [{"metadata": {}}], "text": '"items":['} for n in range(9)]
    for encoded in (
        json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": items}, ensure_ascii=False),
        json.dumps({"items": items, "metadata": {"resourceVersion": "7"}}, separators=(",", ":")),
    ):
        reader, whole, found = ListReader(), encoded.encode(), []
        for at in range(0, len(whole), size):
            found += reader.feed(whole[at : at + size])
        assert (found, reader.finish()) == (items, {"resourceVersion": "7"})
    reader = ListReader()
    assert len(reader.feed(whole[: len(whole) // 2])) < len(items)
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        reader.finish()


def test_health_speaks_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    health = Health("node a", "published")
    for part in ("write", "watch", "write"):
        health.bad(part, Refused(401, "not accepted"))
    health.bad("write", Unreachable("gone"))
    health.bad("write", Unreachable("gone in another way"))
    assert health.condition == "gone in another way; not accepted"
    health.good("write")
    assert not health.well
    health.good("watch")
    assert [record.message.partition(" after")[0] for record in caplog.records] == [
        "node a: not accepted",
        "node a: gone",
        "node a: works again",
    ]
    assert health.condition == "published"


# ---- who we are

CONFIG = """
apiVersion: v1
workload: Config
current-context: here
clusters:
- name: c
  cluster: {server: "https://k8s:6443/", certificate-authority: ca.pem}
contexts:
- name: here
  context: {cluster: c, user: u, namespace: ns}
- name: proxy
  context: {cluster: p, user: ""}
users:
- name: u
  user:
    client-certificate-data: %s
    client-key: own.key
""" % base64.b64encode(b"CERT").decode()  # noqa: UP031


def test_kubeconfig(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(CONFIG)
    (tmp_path / "own.key").write_text("KEY")
    ca = str(tmp_path / "ca.pem")
    expected = Access("https://k8s:6443", ca_file=ca, certificate=b"CERT", key=b"KEY", namespace="ns")
    assert from_kubeconfig(file) == expected


BAD = [
    ("- a", "not a kubeconfig"),
    ("a: [", "not a kubeconfig"),
    ("{}", "no current-context"),
    (CONFIG.replace("current-context: here", "current-context: there"), "'there' is not in contexts"),
    (CONFIG.replace("certificate-authority: ca.pem", "insecure-skip-tls-verify: true"), "not supported"),
    (CONFIG.replace("https:", "http:"), "https is needed"),
    (CONFIG.replace("client-key: own.key", "username: x"), "username is not supported"),
    (CONFIG.replace("client-key: own.key", "client-key-data: '***'"), "not base64"),
    (CONFIG, "own.key: No such file"),
]


def test_a_service_that_may_only_reach_loopback_says_how_to_open_it(script: Script) -> None:
    denied = PermissionError(errno.EPERM, "Operation not permitted")
    assert "`carico install --systemd` again" in KubeClient(script.access())._why(denied)
    assert "cannot be reached: Connection refused" in KubeClient(script.access())._why(
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    )


@pytest.mark.parametrize(("text", "error"), BAD)
def test_a_kubeconfig_that_cannot_work_says_why(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(BadAccess, match=error):
        from_kubeconfig(file)


def test_in_cluster(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(BadAccess, match="automountServiceAccountToken"):
        in_cluster(tmp_path, environ)
    with pytest.raises(BadAccess, match="not in a cluster"):
        in_cluster(tmp_path, {})
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("carico")
    access = in_cluster(tmp_path, environ)
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "carico")
    assert access.token_file == str(tmp_path / "token")


def test_end_of_a_certificate(tmp_path: Path) -> None:
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "/dev/null",
        "-out",
        str(tmp_path / "c.pem"),
        "-days",
        "10",
        "-subj",
        "/CN=x",
    ]
    subprocess.run(command, check=True, capture_output=True)
    end = certificate_end((tmp_path / "c.pem").read_bytes())
    assert end is not None
    assert 9.9 < (end.timestamp() - time.time()) / 86400 < 10.1
    ask = ["openssl", "x509", "-noout", "-enddate", "-in", str(tmp_path / "c.pem")]
    shown = subprocess.run(ask, capture_output=True, text=True, check=True)
    assert f"{end:%b} {end.day:2d} {end:%H:%M:%S %Y} GMT" in shown.stdout
    begin = b"-----BEGIN CERTIFICATE-----\n"
    for broken in (b"", begin + b"AAAA\n-----END CERTIFICATE-----", begin + b"%%"):
        assert certificate_end(broken) is None
