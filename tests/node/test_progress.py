"""The socket for jobs, as jobs see it: over a real unix socket, from a real process; and what is published of it."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import stat
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carico_agent.node.progress import ProgressApi, body
from carico_agent.node.publish.families import status_metrics
from carico_agent.node.publish.status import Status, as_json, from_json
from carico_agent.progress.client import Reporter
from carico_agent.settings import Settings, parse
from tests.node.pods.test_peer_pod import OTHER, OTHER_UID, Node
from tests.node.pods.trees import ID, UID


class Host:
    def __init__(self, tmp_path: Path, **more: Any) -> None:
        self.node = Node(tmp_path / "root")
        table: dict[str, Any] = {
            "node": {"root": str(tmp_path / "root")},
            "socket": {"path": str(tmp_path / "agent.sock")},
            "progress": more,
        }
        self.settings: Settings = parse(table)
        self.runtime = SimpleNamespace(pods=self.node.pods)
        self.api = ProgressApi(lambda: self.settings, self.runtime)  # type: ignore[arg-type]
        self.path = str(self.settings.progress_path)
        self.enter(f"{self.node.path}/{ID}")

    def enter(self, path: str) -> None:
        """This very process goes to that group."""
        self.node.put(os.getpid(), path)

    def use(self, usec: int) -> None:
        """The Pod has used so much CPU."""
        mount = self.node.root.mounts[""]
        (mount / self.node.path.lstrip("/") / "cpu.stat").write_text(f"usage_usec {usec}\nuser_usec 1\n")


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    made = Host(tmp_path, pod_reports_per_s=1000)
    await made.api.start()
    yield made
    await made.api.stop()


class Client:
    """One connection; each request in a thread, because the agent lives in this event loop."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(path)

    async def post(self, body: Any, target: str = "/v1/progress", method: str = "POST") -> tuple[int, dict[str, Any]]:
        return await asyncio.to_thread(self._post, body, target, method)

    def _post(self, body: Any, target: str, method: str) -> tuple[int, dict[str, Any]]:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n"
        with contextlib.suppress(BrokenPipeError):  # one connection too many is answered before it asks, and closed
            self._socket.sendall(head.encode() + text)
        answer = b""
        while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < length(answer):
            more = self._socket.recv(65536)
            assert more, answer
            answer += more
        return int(answer.split()[1]), json.loads(answer.partition(b"\r\n\r\n")[2])

    def close(self) -> None:
        self._socket.close()


def length(answer: bytes) -> int:
    lines = answer.lower().split(b"\r\n")
    return next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


async def test_a_report_counts_for_the_pod_of_the_process(host: Host) -> None:
    client = Client(host.path)
    for step in range(4):
        host.use(2_000_000 * step)
        assert await client.post({"done": step, "total": 10}) == (200, {"next_s": 1.0})
    job = host.api.jobs.table.get(UID)
    assert job is not None
    assert (job.done, job.total) == (3, 10)
    assert [point.cpu_s for point in job.points] == [0, 2, 4, 6]
    client.close()


async def test_names_in_a_report_are_not_read(host: Host) -> None:
    """Forged: the body, the path and the headers name another Pod."""
    client = Client(host.path)
    claim = {"done": 1, "total": 2, "pod": OTHER_UID, "uid": OTHER_UID, "name": "x", "namespace": "kube-system"}
    assert (await client.post(claim, f"/v1/progress?uid={OTHER_UID}"))[0] == 200
    assert [key for key, _ in host.api.jobs.table] == [UID]
    client.close()


async def test_another_pods_pid_is_no_ticket(host: Host) -> None:
    """Forged: a report that names the pid of a process in the other Pod."""
    host.node.put(4242, f"{OTHER}/c")
    client = Client(host.path)
    assert (await client.post({"done": 1, "total": 2, "pid": 4242}))[0] == 200
    assert [key for key, _ in host.api.jobs.table] == [UID]
    client.close()


async def test_a_process_that_moves_loses_its_connection(host: Host) -> None:
    client = Client(host.path)
    assert (await client.post({"done": 1, "total": 2}))[0] == 200
    host.enter(f"{OTHER}/c")
    status, result = await client.post({"done": 2, "total": 2})
    assert (status, "moved" in result["error"]) == (403, True)
    assert [key for key, _ in host.api.jobs.table] == [UID]
    client.close()


async def test_a_process_in_no_pod_has_an_entry_of_its_own(host: Host) -> None:
    """It was refused, without a word in any log."""
    host.enter("/user.slice")
    client = Client(host.path)
    assert await client.post({"done": 1, "total": 2}) == (200, {"next_s": 1.0})
    client.close()
    (view,) = host.api.jobs.views(0.0)
    assert (view.pod.namespace, view.pod.pids, view.job.done) == ("processes", (os.getpid(),), 1)
    assert host.api.status().jobs + host.api.status().unknown == 0  # not in what the node publishes


async def test_where_only_pods_may_report_a_refusal_has_its_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Host(tmp_path, processes=False)
    await made.api.start()
    made.enter("/user.slice")
    client = Client(made.path)
    status, result = await client.post({"done": 1, "total": 2})
    assert status == 403
    assert "in no Pod" in result["error"]
    assert "processes = true" in result["error"]
    assert "a report of progress was refused" in caplog.text
    assert len(made.api.jobs.table) == 0
    client.close()
    await made.api.stop()


async def test_a_process_whose_pod_becomes_known_later_is_that_pod_from_then_on(host: Host) -> None:
    host.enter("/containers/new")
    client = Client(host.path)
    assert (await client.post({"done": 1, "total": 9}))[0] == 200
    host.enter(f"{host.node.path}/{ID}")
    other = Client(host.path)
    assert (await other.post({"done": 2, "total": 9}))[0] == 200
    host.api.refresh()
    assert [key for key, _ in host.api.jobs.table] == [UID]
    client.close()
    other.close()


async def test_a_pod_that_is_not_known_yet_is_asked_to_come_again(host: Host) -> None:
    """No warning in the job, no entry as a plain process: the agent finds the Pod within seconds."""
    host.enter("/kubepods/pod01234567-89ab-cdef-0123-456789abcdef/c")
    client = Client(host.path)
    status, result = await client.post({"done": 1, "total": 2})
    assert (status, "yet" in result["error"]) == (503, True)
    assert len(host.api.jobs.table) == 0
    client.close()


async def test_what_a_process_wrote_just_before_its_end_counts_once(host: Host) -> None:
    client = Client(host.path)
    assert (await client.post({"done": 1, "total": 9}))[0] == 200
    shutil.rmtree(host.node.root.root / f"proc/{os.getpid()}")
    assert (await client.post({"done": 9, "total": 9}))[0] == 200
    assert (await client.post({"done": 9, "total": 9}))[0] == 403
    job = host.api.jobs.table.get(UID)
    assert job is not None
    assert job.done == 9
    client.close()


@pytest.mark.parametrize(
    "body",
    [
        {"done": -1, "total": 2},
        {"done": 3, "total": 2},
        {"done": 1, "total": 0},
        b'{"done": NaN, "total": 2}',
        b'{"done": 1, "total": Infinity}',
        b'{"done": 1e999, "total": 2}',
        b"[1, 2]",
        b"",
        b"\xff\xfe",
        b"[" * 5000,
    ],
)
async def test_bad_reports(host: Host, body: Any) -> None:
    client = Client(host.path)
    assert (await client.post(body))[0] == 400
    assert (await client.post({"done": 1, "total": 2}))[0] == 200
    client.close()


async def test_too_large(host: Host) -> None:
    client = Client(host.path)
    assert (await client.post(b"x" * 20_000))[0] == 413
    client.close()


async def test_the_socket_offers_nothing_else_and_is_for_everybody(host: Host) -> None:
    client = Client(host.path)
    for method, target in (("GET", "/v1/progress"), ("GET", "/v1/status"), ("POST", "/v1/reload"), ("GET", "/v1/pods")):
        assert (await client.post({}, target, method))[0] in (404, 405)
    client.close()
    assert stat.S_IMODE(Path(host.path).stat().st_mode) == 0o666
    assert stat.S_IMODE(Path(host.path).parent.stat().st_mode) == 0o755
    assert os.listdir(Path(host.path).parent) == ["progress.sock"]


async def test_a_flood_stops_the_pod_that_floods_only(tmp_path: Path) -> None:
    host = Host(tmp_path, pod_reports_per_s=0.1, pod_connections=2)
    await host.api.start()
    flood = Client(host.path)
    codes = [(await flood.post({"done": 1, "total": 2}))[0] for _ in range(5)]
    assert codes == [200, 429, 429, 429, 429]
    second, third = Client(host.path), Client(host.path)
    assert (await third.post({"done": 1, "total": 2}))[0] == 503
    host.enter(f"{OTHER}/c")
    other = Client(host.path)
    assert (await other.post({"done": 1, "total": 2}))[0] == 200
    for client in (flood, second, third, other):
        client.close()
    await host.api.stop()


async def test_many_jobs_are_asked_to_report_less_often(tmp_path: Path) -> None:
    host = Host(tmp_path, reports_per_s=0.5, pod_reports_per_s=1000)
    await host.api.start()
    client = Client(host.path)
    assert (await client.post({"done": 1, "total": 2}))[1] == {"next_s": 2.0}
    client.close()
    await host.api.stop()


async def test_the_client_for_jobs_speaks_to_the_real_socket(host: Host) -> None:
    clock = [0.0]
    reporter = Reporter(host.path, lambda: clock[0])
    for step in range(1, 6):
        clock[0] += 1.0
        await asyncio.to_thread(reporter.report, step, 5)
        await until(lambda wanted=step: host.api.jobs.table.reports >= wanted)
    assert reporter.sent == 5
    job = host.api.jobs.table.get(UID)
    assert job is not None
    assert job.done == 5
    reporter.close()


async def test_after_a_restart_a_job_is_known_with_its_next_report(tmp_path: Path) -> None:
    clock, host = [0.0], Host(tmp_path, pod_reports_per_s=1000)
    await host.api.start()
    reporter = Reporter(host.path, lambda: clock[0])
    await asyncio.to_thread(reporter.report, 1, 5)
    await host.api.stop()
    again = ProgressApi(lambda: host.settings, host.runtime)  # type: ignore[arg-type]
    await again.start()
    async with asyncio.timeout(20):
        while not again.jobs.table.reports:
            clock[0] += 1.0
            await asyncio.to_thread(reporter.report, 2, 5)
            await asyncio.sleep(0.001)
    assert again.jobs.table.get(UID) is not None
    reporter.close()
    await again.stop()


async def test_what_is_published(host: Host) -> None:
    host.api.refresh()
    for step in range(4):
        host.use(2_000_000 * step)
        host.api.jobs.report(host.node.pods[UID], 10.0 * step, step, 10)
    views = host.api.jobs.views(30.0)
    shown = body(views[0], 30.0)
    assert (shown["ratio"], shown["left_cpu_s"], shown["left_s"], shown["source"]) == (0.3, 14.0, 70.0, "cpu")
    found = host.api.jobs.summary(30.0)
    assert (found.jobs, found.total_s, found.longest_s) == (1, 14.0, 14.0)


def test_work_in_status_and_metrics() -> None:
    status = from_json({"node": "a", "work": {"jobs": 2, "total_s": 15.0, "longest_s": 10.0}})
    assert as_json(status)["work"]["total_s"] == 15.0
    families = {family.name: family.samples for family in status_metrics(status, 0.0)}
    assert families["carico_work_left_seconds"] == [("carico_work_left_seconds", {}, 15.0)]
    assert families["carico_jobs"][0][2] == 2
    assert from_json(as_json(Status(node="b"))).work.jobs == 0


async def test_connections_leave_nothing_behind(host: Host) -> None:
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(50):
        client = Client(host.path)
        await client.post({"done": 1, "total": 2})
        client.close()
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert threading.active_count() < threads + 20  # of the loop's executor, which keeps some


@pytest.mark.parametrize("planted", ["living socket", "dangling link", "file", "folder", "foreign folder"])
async def test_what_a_pod_puts_into_the_folder_does_not_stop_the_agent(tmp_path: Path, planted: str) -> None:
    """A socket with a full queue held the start up for ever, a link to nothing ended it."""
    made = Host(tmp_path, pod_reports_per_s=1000)
    path = Path(made.path)
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        if planted == "living socket":
            listener.bind(made.path)
            listener.listen(0)
        elif planted == "dangling link":
            path.symlink_to(tmp_path / "nothing")
        elif planted == "file":
            path.write_text("mine")
        elif planted == "folder":
            (path / "kept").mkdir(parents=True)
        elif os.geteuid() == 0:
            os.chown(path.parent, 65534, 65534)
        else:
            pytest.skip("needs root: a folder of somebody else is made")
        await made.api.start()
        if "folder" not in planted:
            assert (await Client(made.path).post({"done": 1, "total": 2}))[0] == 200
        await made.api.stop()
