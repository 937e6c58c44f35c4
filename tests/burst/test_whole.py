"""The whole service between two small API servers: watches, rounds, mover, events, metrics, leader, restart."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carico_agent.burst.by_hand import bring_home, look
from carico_agent.burst.daemon import BurstDaemon
from carico_agent.burst.objects import copy_job
from carico_agent.burst.protocol import Intent
from carico_agent.burst.report import status
from carico_agent.burst.steps import Request
from carico_agent.lib.net import metrics
from carico_agent.settings import Settings, parse
from tests.burst.model import Cluster, ledger
from tests.burst.small_api import SmallApi
from tests.burst.test_mover import JOBS, fit

PRICES = "[machines.west]\nbig = 0.68\n"


class TwoClusters:
    """Home and cloud, and settings that name them."""

    def __init__(self, folder: Path, work_s: float = 0.2, home_places: int = 1) -> None:
        self.folder = folder
        self.home = SmallApi(Cluster("home"), 1, home_places, work_s)
        self.cloud = SmallApi(Cluster("cloud"), 2, 8, work_s)
        (folder / "prices.toml").write_text(PRICES)

    async def __aenter__(self) -> "TwoClusters":
        await self.home.__aenter__()
        await self.cloud.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.home.__aexit__()
        await self.cloud.__aexit__()

    def settings(self, **more: Any) -> Settings:
        target = {"kubeconfig": self.cloud.kubeconfig(self.folder), "region": "west", "machine": "big", "image_s": 0}
        burst = {
            "kubeconfig": self.home.kubeconfig(self.folder),
            "listen": "127.0.0.1:0",
            "unschedulable_s": 0,
            "period_s": 0.5,
            "lease_s": 4.0,
            "prices": str(self.folder / "prices.toml"),
            "targets": {"cloud": target},
            **more,
        }
        return parse({"burst": burst})

    async def until_one_is_away(self) -> None:
        """What runs at home goes on until a copy is there: a slow machine must not finish everything at home first."""
        work_s, self.home.work_s = self.home.work_s, 1e9
        await until(lambda: self.cloud.cluster.jobs, "the first copy is there")
        self.home.work_s = work_s

    def submit(self, *names: str) -> None:
        for name in names:
            self.home.cluster.handle(Request(True, "POST", JOBS, fit(name)))

    def done(self, *names: str) -> bool:
        jobs = self.home.cluster.jobs
        return (
            all(jobs[f"default/{name}"]["status"].get("conditions") for name in names) and not self.cloud.cluster.jobs
        )

    def uid(self, name: str) -> str:
        return str(self.home.cluster.jobs[f"default/{name}"]["metadata"]["uid"])

    def judge(self, *names: str) -> None:
        for name in names:
            uid = self.uid(name)
            assert self.home.succeeded.get(uid, 0) + self.cloud.succeeded.get(uid, 0) == 1, name


@asynccontextmanager
async def daemon(settings: Settings) -> AsyncIterator[BurstDaemon]:
    made = BurstDaemon(settings)
    made.supervisor.start("lease", made.lease.run)
    made.supervisor.start("service", made._serve)
    try:
        yield made
    finally:
        await made.stop()


async def until(ready: Callable[[], Any], what: str) -> None:
    """Generous: only a hang reaches the bound."""
    async with asyncio.timeout(120):
        while not ready():
            await asyncio.sleep(0.02)
    assert ready(), what


@pytest.mark.long
async def test_what_does_not_fit_runs_elsewhere(tmp_path: Path) -> None:
    names = [f"j{n}" for n in range(12)]
    async with TwoClusters(tmp_path) as pair, daemon(pair.settings()) as service:
        pair.submit(*names)
        await pair.until_one_is_away()
        await until(lambda: pair.done(*names), "all are done")
        pair.judge(*names)
        assert pair.home.succeeded
        assert pair.cloud.succeeded
        moved = len(pair.cloud.succeeded)
        await until(lambda: len(pair.home.events) >= 2 * moved, "events are posted")
        text = metrics.render(service.families())
        assert f"carico_burst_moved_total {moved}" in text
        assert 'carico_burst_jobs{state="done"}' in text
        assert "carico_burst_leads 1" in text


@pytest.mark.long
async def test_two_services_and_one_that_dies(tmp_path: Path) -> None:
    names = [f"j{n}" for n in range(8)]
    async with TwoClusters(tmp_path) as pair:
        pair.submit(*names)
        async with daemon(pair.settings()):
            await pair.until_one_is_away()
        async with daemon(pair.settings()) as one, daemon(pair.settings()) as other:
            await until(lambda: one.lease.leads or other.lease.leads, "one leads")
            assert not (one.lease.leads and other.lease.leads)
            await until(lambda: pair.done(*names), "all are done")
        pair.judge(*names)


@pytest.mark.long
async def test_a_target_away_then_recall_and_forget(tmp_path: Path) -> None:
    async with TwoClusters(tmp_path, work_s=1e9) as pair:
        settings = pair.settings()
        pair.submit("stays", "a", "b")
        async with daemon(settings) as service:
            await until(lambda: len(pair.cloud.cluster.running) == 2, "two run in the cloud")
            await pair.cloud.stop_listening()
            await until(lambda: not _answers(service), "the service knows")
            assert service.service is not None
            whys = {job["name"]: job["why"] for job in status(service.service)["jobs"] if job["state"] == "away"}
            assert len(whys) == 2
            assert all("does not answer" in why for why in whys.values())
            seen = await look(settings)
            assert not seen["targets"]["cloud"]["answers"]
            first, second = sorted(whys)
            started = list(pair.home.started)
            await bring_home(settings, "default", first, Intent.FORGET)
            assert ledger(pair.home.cluster, first)["state"] == "home"
            pair.cloud.cluster.running.clear()
            pair.cloud.cluster.pods.clear()
            await pair.cloud.listen_again()
            await until(lambda: _epoch(pair, first) != 1, "the old copy is deleted")  # a new move may have made another
            outcome = await bring_home(settings, "default", second, Intent.RECALL)
            assert outcome is not None
            assert ledger(pair.home.cluster, second)["state"] == "home"
            assert pair.home.started == started  # home is full; nothing was started twice
            await until(lambda: _epoch(pair, second) is None, "its copy is gone, and it is not moved again")


def _epoch(pair: TwoClusters, name: str) -> int | None:
    """Of the copy in the cloud, if there is one."""
    copy = pair.cloud.cluster.jobs.get(f"default/{name}")
    return copy_job(copy).epoch if copy else None


def _answers(service: BurstDaemon) -> bool:
    assert service.service is not None
    return bool(status(service.service)["targets"]["cloud"]["answers"])


async def test_plan_writes_nothing(tmp_path: Path) -> None:
    async with TwoClusters(tmp_path, work_s=1e9) as pair:
        pair.submit("a", "b")
        await until(lambda: len(pair.home.cluster.pods) == 2 and pair.home.started, "one runs")
        before = {key: job["metadata"]["resourceVersion"] for key, job in pair.home.cluster.jobs.items()}
        seen = await look(pair.settings())
        assert [job["to"] for job in seen["jobs"]].count("cloud") == 1
        assert before == {key: job["metadata"]["resourceVersion"] for key, job in pair.home.cluster.jobs.items()}
        assert not pair.cloud.cluster.jobs
        assert not pair.home.plain


@pytest.mark.long
async def test_a_job_that_loses_its_label_while_it_is_away_comes_home_all_the_same(tmp_path: Path) -> None:
    async with TwoClusters(tmp_path, work_s=1.0) as pair:
        pair.submit("a", "b", "c")
        async with daemon(pair.settings()):
            await until(lambda: pair.cloud.cluster.running, "it runs in the cloud")
            key = next(iter(pair.cloud.cluster.jobs))
            patch = {"metadata": {"labels": {"carico.dev/burst": None}}}
            pair.home.cluster.handle(Request(True, "PATCH", f"{JOBS}/{key.partition('/')[2]}", patch))
            await until(lambda: pair.done("a", "b", "c"), "all are done")


async def test_no_such_job(tmp_path: Path) -> None:
    async with TwoClusters(tmp_path) as pair:
        assert await bring_home(pair.settings(), "default", "none", Intent.RECALL) is None
        pair.submit("a")
        with pytest.raises(LookupError, match="is at home"):
            await bring_home(pair.settings(), "default", "a", Intent.RECALL)
