"""The protocol on two real control planes: movers that die after every request, lose answers, or are two at once.

Every Job has a mover of its own here, killed at another point, so that one run tries all of them at once.
"""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from carico_agent.burst.link import Send, carry, drive
from carico_agent.burst.objects import State, home_job
from carico_agent.burst.protocol import Intent, Suspends
from carico_agent.burst.steps import Request, Route, ServerAnswer, jobs_path, reconcile
from carico_agent.lib.kube.errors import KubeError
from lab.support.burst_planes import BurstPlane, ended, job_body, overlaps
from lab.support.burst_scene import Scene
from lab.support.waiting import wait_for
from tests.burst.model import SEAL

WHOLE = bool(os.environ.get("CARICO_BURST_WHOLE"))
JOBS = 90 if WHOLE else 30
ROUTE = Route("home-id", "cloud", Suspends(home=True, target=True), cluster="cloud-id", seal=SEAL)
END = {State.DONE}


class Killed(Exception):
    """The mover is gone."""


def killed_after(n: int, lost: bool, send: Send) -> Send:
    """The n-th request (from 1) is the last one: not sent, or (`lost`) sent and its answer never seen."""
    sent = 0

    async def sending(request: Request) -> ServerAnswer:
        nonlocal sent
        sent += 1
        if sent < n:
            return await send(request)
        if lost:
            await send(request)
        raise Killed

    return sending


async def until_done(name: str, wish: Intent, send: Send, until: set[State] = END) -> None:
    """A mover that is started again whenever the servers do not answer."""
    while True:
        try:
            await carry("default", name, wish, ROUTE, send, until)
            return
        except KubeError:
            await asyncio.sleep(0.2)


async def all_of(work: list[Awaitable[None]]) -> None:
    async with asyncio.timeout(300):
        await asyncio.gather(*work)


Kill = Callable[[int], tuple[int, bool]]


async def test_killed_after_every_request(planes: tuple[BurstPlane, BurstPlane]) -> None:
    """Job i's mover dies at its (i mod 15)-th request, every second one with the answer lost; then another goes on."""
    async with Scene(planes) as scene:
        names = await scene.submit([job_body(f"job-{n}", 0.5) for n in range(JOBS)])
        died = 0

        async def one(number: int, name: str) -> None:
            nonlocal died
            n, lost = number % 15 + 1, number // 15 % 2 == 1
            try:
                await carry("default", name, Intent.MOVE, ROUTE, killed_after(n, lost, scene.send), END)
            except Killed:
                died += 1
            await until_done(name, Intent.MOVE, scene.send)

        await all_of([one(number, name) for number, name in enumerate(names)])
        assert died >= JOBS * 2 // 3
        scene.judge(names, cluster="cloud")


async def test_home_frees_up_while_movers_die(planes: tuple[BurstPlane, BurstPlane]) -> None:
    """Pods get nodes at home in the middle of moves: in hold, in drain, before and after the commit."""
    async with Scene(planes) as scene:
        names = await scene.submit([job_body(f"job-{n}", 0.7) for n in range(JOBS)])

        async def one(number: int, name: str) -> None:
            await asyncio.sleep(number % 10 * 0.1)
            with contextlib.suppress(Killed):
                await carry("default", name, Intent.MOVE, ROUTE, killed_after(number % 12 + 1, True, scene.send), END)
            await asyncio.sleep(0.3)
            await until_done(name, Intent.MOVE, scene.send, {State.DONE})

        async def open_home() -> None:
            for closed in (False, True, False):
                await asyncio.sleep(0.4)
                await asyncio.to_thread(scene.cordon, closed)

        await all_of([open_home(), *(finish(scene, one(n, name), name) for n, name in enumerate(names))])
        scene.judge(names)


async def finish(scene: Scene, move: Awaitable[None], name: str) -> None:
    """A Job may stay at home for good; then it completes there."""
    mover = asyncio.ensure_future(move)
    while True:
        done, _ = await asyncio.wait({mover}, timeout=0.5)
        if done:
            mover.result()
        job = await asyncio.to_thread(scene.home.admin.get, jobs_path("default", name))
        if ended(job) and not job["metadata"].get("finalizers"):
            mover.cancel()
            return
        if done:
            mover = asyncio.ensure_future(until_done(name, Intent.KEEP, scene.send))
            await asyncio.sleep(0.2)


async def test_two_movers_at_once(planes: tuple[BurstPlane, BurstPlane]) -> None:
    async with Scene(planes) as scene:
        names = await scene.submit([job_body(f"job-{n}", 0.5) for n in range(JOBS // 2)])
        movers = [until_done(name, Intent.MOVE, scene.send) for name in names for _ in range(2)]
        await all_of(movers)
        scene.judge(names, cluster="cloud")


async def test_recalls_that_die(planes: tuple[BurstPlane, BurstPlane]) -> None:
    """Moved, then recalled by movers that die at every request; home has room by then."""
    async with Scene(planes) as scene:
        # 30 s: none shall end in the moment its Pod is deleted
        names = await scene.submit([job_body(f"job-{n}", 30.0) for n in range(JOBS // 2)])
        await all_of([until_done(name, Intent.MOVE, scene.send, {State.AWAY}) for name in names])
        scene.home.admin.merge("/api/v1/nodes/home-0/status", {"status": {"allocatable": {"pods": "110"}}})
        scene.cordon(False)

        async def one(number: int, name: str) -> None:
            kept = {State.HOME, State.DONE}
            with contextlib.suppress(Killed):
                await carry(
                    "default", name, Intent.RECALL, ROUTE, killed_after(number % 12 + 1, True, scene.send), kept
                )
            await until_done(name, Intent.RECALL, scene.send, kept)
            await finish(scene, until_done(name, Intent.KEEP, scene.send), name)

        await all_of([one(n, name) for n, name in enumerate(names)])
        scene.judge(names)
        assert {run.cluster for run in scene.runs if run.ended == "Succeeded"} >= {"home"}


async def test_the_sources_order_runs_jobs_twice(planes: tuple[BurstPlane, BurstPlane]) -> None:
    """Copy, then delete, as the thesis does (4.5), in the same scene: this harness sees it."""
    async with Scene(planes) as scene:
        names = await scene.submit([job_body(f"job-{n}", 3.0) for n in range(6)])
        scene.home.admin.merge("/api/v1/nodes/home-0/status", {"status": {"allocatable": {"pods": "110"}}})
        scene.cordon(False)
        for name in names:
            job = scene.home.admin.get(jobs_path("default", name))
            body = job_body(name, 3.0)
            labels = {"carico.dev/burst-origin": job["metadata"]["uid"]}
            body["spec"]["template"]["metadata"]["labels"] = labels
            scene.cloud.admin.post(jobs_path("default"), body)
        await asyncio.to_thread(wait_for, lambda: len(scene.runs) >= 12, "both run")
        for name in names:
            scene.home.admin.request("DELETE", jobs_path("default", name) + "?propagationPolicy=Background")
        assert len(overlaps(scene.runs)) == 6


async def test_reconcile_needs_few_requests(planes: tuple[BurstPlane, BurstPlane]) -> None:
    async with Scene(planes) as scene:
        (name,) = await scene.submit([job_body("one", 0.5)])
        sent: Counter[bool] = Counter()

        async def counting(request: Request) -> ServerAnswer:
            sent[request.home] += 1
            return await scene.send(request)

        job = home_job(scene.home.admin.get(jobs_path("default", name)), SEAL)
        while True:
            outcome = await drive(reconcile(job, Intent.MOVE, ROUTE), counting)
            assert outcome.job is not None
            if outcome.job.ledger.state == State.DONE:
                break
            await asyncio.to_thread(wait_for, lambda: _moved_on(scene, name), "somebody else acts")
            job = home_job(scene.home.admin.get(jobs_path("default", name)), SEAL)
        assert sent[True] <= 10
        assert sent[False] <= 6
        scene.judge([name], cluster="cloud")


def _moved_on(scene: Scene, name: str) -> bool:
    """Held and stopped, or finished at the target."""
    home = home_job(scene.home.admin.get(jobs_path("default", name)), SEAL)
    if home.ledger.state == State.HOLDING:
        return home.active == 0
    copies = scene.cloud.admin.get(jobs_path("default"))["items"]
    return not copies or bool(ended(copies[0]))


@pytest.mark.parametrize("where", ["home", "cloud"])
@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_api_server_away(planes: tuple[BurstPlane, BurstPlane], where: str, how: str) -> None:
    """An API server is killed, or stopped as a process, in the middle of everything, and comes back."""
    away_s = 30.0 if WHOLE else 5.0
    async with Scene(planes) as scene:
        names = await scene.submit([job_body(f"job-{n}", 0.5) for n in range(JOBS // 2)])
        plane = planes[0] if where == "home" else planes[1]

        async def trouble() -> None:
            await asyncio.sleep(0.5)
            if how == "killed":
                await asyncio.to_thread(plane.stop_api)
                await asyncio.sleep(away_s)
                await asyncio.to_thread(plane.start_api)
            else:
                plane.signal_api(19)  # SIGSTOP
                await asyncio.sleep(away_s)
                plane.signal_api(18)  # SIGCONT

        await all_of([trouble(), *(until_done(name, Intent.MOVE, scene.send) for name in names)])
        scene.judge(names, cluster="cloud", api_died=where)
