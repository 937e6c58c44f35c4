"""Reservations over the real socket of a real agent."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from carico_agent.client import AgentClient, AgentError, AsyncAgentClient
from carico_agent.lib.net.http import HttpServer
from carico_agent.lib.supervise.workers import Workers
from carico_agent.node.reservations import Reservations
from carico_agent.node.reserve import ReservationApi
from tests.conftest import AgentProcess

Start = Callable[..., AgentProcess]


def test_life_of_a_reservation(start_agent: Start, roomy: list[str]) -> None:
    agent = start_agent(*roomy).wait()
    before = agent.status()["available"]
    assert before >= 10
    with agent.reserve(3, ttl_s=60, holder="test") as held:
        assert held["available"] == before - 3
        assert held["durable"] is True
        assert agent.request("GET", f"/v1/reservations/{held['id']}")["holder"] == "test"
        listed = agent.request("GET", "/v1/reservations")
        assert [r["pods"] for r in listed["reservations"]] == [3]
        deadline_s = time.monotonic() + 20
        while agent.status()["reserved"] != 3:
            assert time.monotonic() < deadline_s
        assert agent.status()["available"] == before - 3
    assert agent.request("GET", "/v1/reservations")["available"] == before
    with pytest.raises(AgentError) as refused:
        agent.request("POST", "/v1/reservations", {"pods": before + 1, "ttl_s": 1})
    assert (refused.value.status, refused.value.body["available"]) == (409, before)
    for body, word in [
        ({"pods": 1}, "ttl_s is missing"),
        ({"pods": 1, "ttl_s": 1, "x": 1}, "unknown field x"),
        ({"pods": "a", "ttl_s": 1}, "whole number"),
    ]:
        with pytest.raises(AgentError, match=word) as bad:
            agent.request("POST", "/v1/reservations", body)
        assert bad.value.status == 400
    with pytest.raises(AgentError, match="no reservation 'nope'") as gone:
        agent.request("DELETE", "/v1/reservations/nope")
    assert gone.value.status == 404


def test_a_reservation_names_its_workload(start_agent: Start, roomy: list[str]) -> None:
    """A workload that never ran here is answered by the prior, as /v1/workloads does; the reservation says what it is
    for."""
    agent = start_agent(*roomy).wait(lambda a: a.status()["available"] >= 10)
    fits = agent.request("GET", "/v1/workloads/shop/db")["fits"]
    held = agent.request("POST", "/v1/reservations", {"pods": 1, "ttl_s": 60, "workload": "shop/db"})
    assert held["workload"] == "shop/db"
    assert [r["workload"] for r in agent.request("GET", "/v1/reservations")["reservations"]] == ["shop/db"]
    with pytest.raises(AgentError) as refused:
        agent.request("POST", "/v1/reservations", {"pods": int(fits), "ttl_s": 60, "workload": "shop/db"})
    assert (refused.value.status, refused.value.body["available"]) == (409, int(fits) - 1)


def test_promises_survive_kill_9(start_agent: Start, roomy: list[str]) -> None:
    process = start_agent(*roomy)
    agent = process.wait()
    held = agent.request("POST", "/v1/reservations", {"pods": 4, "ttl_s": 300, "holder": "long"})
    process.process.kill()
    process.process.wait()
    again = start_agent(*roomy).wait()
    listed = again.request("GET", "/v1/reservations")["reservations"]
    assert [(r["id"], r["pods"]) for r in listed] == [(held["id"], 4)]


async def test_what_is_called_durable_was_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, works = [], [True]
    real = os.fsync

    def sync(descriptor: int) -> None:
        if not works[0]:
            raise OSError(errno.EIO, "Input/output error")
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    held = Reservations(most=9, max_ttl_s=600)
    api = ReservationApi(held, tmp_path / "reservations.json", Workers("the disk", 1), lambda: 9.0, lambda: None)
    held.reserve(api.now_s, 9.0, pods=2, ttl_s=60)
    assert await api._saved() is True
    assert [Path(path).name.startswith(".reservations.json") for path in synced] == [True, False]
    assert synced[1] == str(tmp_path)
    works[0] = False
    assert await api._saved() is False


async def test_a_heavy_workload_takes_more_places_over_the_api(tmp_path: Path) -> None:
    """Of a kind of which a third as many fit, one Pod takes three places; one that fits nowhere is refused."""
    held, fits = Reservations(most=9, max_ttl_s=600), {"shop/db": 3.0, "shop/huge": 0.0}
    workers = Workers("the disk", 1)
    api = ReservationApi(
        held, tmp_path / "r.json", workers, lambda: 9.0, lambda: None, lambda workload: fits.get(workload)
    )
    server = HttpServer(api.routes())
    await server.start(tmp_path / "a.sock")
    agent = AsyncAgentClient(str(tmp_path / "a.sock"), timeout_s=60.0)
    try:
        for workload, available in (("shop/db", 6), ("shop/web", 5)):
            made = await agent.request("POST", "/v1/reservations", {"pods": 1, "ttl_s": 60, "workload": workload})
            assert made["available"] == available
        with pytest.raises(AgentError) as refused:
            await agent.request("POST", "/v1/reservations", {"pods": 1, "ttl_s": 60, "workload": "shop/huge"})
        assert (refused.value.status, refused.value.body["available"]) == (409, 0)
    finally:
        await server.stop()


def test_a_damaged_file_is_set_aside(start_agent: Start, roomy: list[str], tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/reservations.json").write_text('{"reservations": [{"id": 5}]')
    process = start_agent(*roomy)
    assert process.wait().request("GET", "/v1/reservations")["reservations"] == []
    assert "set aside" in process.log.read_text()
    assert (tmp_path / "state/reservations.damaged").exists()


def test_where_nothing_can_be_written_it_says_so(start_agent: Start, roomy: list[str], tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    agent = start_agent(*roomy).wait()
    held = agent.request("POST", "/v1/reservations", {"pods": 1, "ttl_s": 5})
    assert held["durable"] is False


def test_a_thousand_concurrent_requests_never_promise_more_than_there_is(start_agent: Start, roomy: list[str]) -> None:
    process = start_agent(*roomy)
    available = process.wait().status()["available"]
    results: list[int] = []
    lock = threading.Lock()

    def many() -> None:
        client = AgentClient(process.socket, timeout_s=60)
        for _ in range(50):
            try:
                client.request("POST", "/v1/reservations", {"pods": 1, "ttl_s": 600})
                code = 201
            except AgentError as error:
                code = error.status
            with lock:
                results.append(code)

    threads = [threading.Thread(target=many) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 1000
    assert results.count(201) == available
    assert results.count(409) == 1000 - available
