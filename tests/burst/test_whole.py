"""The whole service between two small API servers: watches, rounds, mover, events, metrics, leader, restart."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carico_agent.app.burst import BurstDaemon, bring_home, look
from carico_agent.burst.protocol import Wish
from carico_agent.burst.steps import Request
from carico_agent.net import metrics
from carico_agent.settings import Settings, parse
from tests.burst.model import Cluster, ledger
from tests.burst.small_api import SmallApi
from tests.burst.test_mover import JOBS, fit

PRICES = "[machines.west]\nbig = 0.68\n"


class Town:
    """Home and cloud, and settings that name them."""

    def __init__(self, folder: Path, work_s: float = 0.2, home_places: int = 1) -> None:
        self.folder = folder
        self.home = SmallApi(Cluster("home"), 1, home_places, work_s)
        self.cloud = SmallApi(Cluster("cloud"), 2, 8, work_s)
        (folder / "prices.toml").write_text(PRICES)

    async def __aenter__(self) -> "Town":
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


async def test_what_does_not_fit_runs_elsewhere(tmp_path: Path) -> None:
    names = [f"j{n}" for n in range(12)]
    async with Town(tmp_path) as town, daemon(town.settings()) as service:
        town.submit(*names)
        await until(lambda: town.done(*names), "all are done")
        town.judge(*names)
        assert town.home.succeeded
        assert town.cloud.succeeded
        moved = len(town.cloud.succeeded)
        await until(lambda: len(town.home.events) >= 2 * moved, "events are posted")
        text = metrics.render(service._families())
        assert f"carico_burst_moved_total {moved}" in text
        assert 'carico_burst_jobs{state="done"}' in text
        assert "carico_burst_leads 1" in text


async def test_two_services_and_one_that_dies(tmp_path: Path) -> None:
    names = [f"j{n}" for n in range(8)]
    async with Town(tmp_path) as town:
        town.submit(*names)
        async with daemon(town.settings()):
            await until(lambda: town.cloud.cluster.jobs, "the first copy is there")
        async with daemon(town.settings()) as one, daemon(town.settings()) as other:
            await until(lambda: one.lease.leads or other.lease.leads, "one leads")
            assert not (one.lease.leads and other.lease.leads)
            await until(lambda: town.done(*names), "all are done")
        town.judge(*names)


async def test_a_target_away_then_recall_and_forget(tmp_path: Path) -> None:
    async with Town(tmp_path, work_s=1e9) as town:
        settings = town.settings()
        town.submit("stays", "a", "b")
        async with daemon(settings) as service:
            await until(lambda: len(town.cloud.cluster.running) == 2, "two run in the cloud")
            await town.cloud.stop_listening()
            await until(lambda: not _answers(service), "the service knows")
            assert service.service is not None
            whys = {job["name"]: job["why"] for job in service.service.status()["jobs"] if job["state"] == "away"}
            assert len(whys) == 2
            assert all("does not answer" in why for why in whys.values())
            seen = await look(settings)
            assert not seen["targets"]["cloud"]["answers"]
            first, second = sorted(whys)
            started = list(town.home.started)
            await bring_home(settings, "default", first, Wish.FORGET)
            assert ledger(town.home.cluster, first)["state"] == "home"
            town.cloud.cluster.running.clear()
            town.cloud.cluster.pods.clear()
            await town.cloud.listen_again()
            await until(lambda: f"default/{first}" not in town.cloud.cluster.jobs, "the old copy is deleted")
            outcome = await bring_home(settings, "default", second, Wish.RECALL)
            assert outcome is not None
            assert ledger(town.home.cluster, second)["state"] == "home"
            assert town.home.started == started  # home is full; nothing was started twice
            await until(lambda: not town.cloud.cluster.jobs, "nothing is left there")


def _answers(service: BurstDaemon) -> bool:
    assert service.service is not None
    return bool(service.service.status()["targets"]["cloud"]["answers"])


async def test_plan_writes_nothing(tmp_path: Path) -> None:
    async with Town(tmp_path, work_s=1e9) as town:
        town.submit("a", "b")
        await until(lambda: len(town.home.cluster.pods) == 2 and town.home.started, "one runs")
        before = {key: job["metadata"]["resourceVersion"] for key, job in town.home.cluster.jobs.items()}
        seen = await look(town.settings())
        assert [job["to"] for job in seen["jobs"]].count("cloud") == 1
        assert before == {key: job["metadata"]["resourceVersion"] for key, job in town.home.cluster.jobs.items()}
        assert not town.cloud.cluster.jobs
        assert not town.home.plain


async def test_a_job_that_loses_its_label_while_it_is_away_comes_home_all_the_same(tmp_path: Path) -> None:
    async with Town(tmp_path, work_s=1.0) as town:
        town.submit("a", "b", "c")
        async with daemon(town.settings()):
            await until(lambda: town.cloud.cluster.running, "it runs in the cloud")
            key = next(iter(town.cloud.cluster.jobs))
            patch = {"metadata": {"labels": {"carico.dev/burst": None}}}
            town.home.cluster.handle(Request(True, "PATCH", f"{JOBS}/{key.partition('/')[2]}", patch))
            await until(lambda: town.done("a", "b", "c"), "all are done")


async def test_no_such_job(tmp_path: Path) -> None:
    async with Town(tmp_path) as town:
        assert await bring_home(town.settings(), "default", "none", Wish.RECALL) is None
        town.submit("a")
        with pytest.raises(LookupError, match="is at home"):
            await bring_home(town.settings(), "default", "a", Wish.RECALL)
