"""The mover on the model: many Jobs, bad input, targets that do not answer, events and reasons in words."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from carico_agent.burst.events import JobEvents
from carico_agent.burst.mover import Mover
from carico_agent.burst.objects import copy_job, home_job
from carico_agent.burst.protocol import Intent
from carico_agent.burst.steps import Request
from carico_agent.burst.target import Key, Target
from tests.burst.fake_client import FakeClient
from tests.burst.model import SEAL, Object, job, ledger
from tests.burst.world import ROUTE, World

JOBS = "/apis/batch/v1/namespaces/default/jobs"


class Stage:
    """A world with a mover on it; `go` lets everybody act until the mover has nothing to do."""

    def __init__(self) -> None:
        self.world = World()
        self.home, self.cloud = FakeClient(self.world.home), FakeClient(self.world.cloud)
        self.target = Target(ROUTE, self.cloud, self.cloud, known=True)  # type: ignore[arg-type]
        self.events = JobEvents()
        self.mover = Mover(self.home, {"cloud": self.target}, self.events, SEAL)  # type: ignore[arg-type]

    def submit(self, body: Object) -> Key:
        self.world.home.handle(Request(True, "POST", JOBS, body))
        uid = self.world.home.jobs[f"default/{body['metadata']['name']}"]["metadata"]["uid"]
        self.world.home.sync(uid, 10)
        return "default", str(body["metadata"]["name"])

    async def go(self, rounds: int = 12, work: bool = True) -> None:
        """The watches' part is played here: everything changed is shown to the mover."""
        task = asyncio.create_task(self.mover.run())
        for _ in range(rounds):
            for found in list(self.world.home.jobs.values()):
                self.mover.saw(home_job(found, SEAL))
            there = set()
            for found in list(self.world.cloud.jobs.values()):
                copy = copy_job(found)
                self.mover.saw_copy(self.target, copy)
                there.add((copy.home_namespace or copy.namespace, copy.name))
            for key in set(self.target.copies) - there:
                self.mover.saw_copy(self.target, self.target.copies[key], gone=True)
            for _ in range(60):
                await asyncio.sleep(0)
            self.world._everybody(self.world.cloud, work)
            self.world._everybody(self.world.home, False)
            self.world.check()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def mover_only(self) -> None:
        """The mover, and no watch: it reads what it does not know."""
        task = asyncio.create_task(self.mover.run())
        for _ in range(60):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def result(self) -> list[str]:
        bodies = [self.events._queue.get_nowait()[1] for _ in range(self.events._queue.qsize())]
        return [f"{body['type']} {body['reason']} {body['message']}" for body in bodies]


def fit(name: str, **spec: Any) -> Object:
    """A Job with requests; `spec` is merged into its Pods' spec."""
    body = job(name)
    body["spec"]["template"]["spec"] = {
        "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}, **spec.pop("container", {})}
        ],
        **spec,
    }
    return body


async def test_many_jobs_move_and_end() -> None:
    stage = Stage()
    keys = [stage.submit(fit(f"j{n}")) for n in range(30)]
    for key in keys:
        stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(30)
    stage.world.check_end({f"default/{name}": 1 for _, name in keys})
    assert stage.mover.moved == 30
    assert stage.mover.finished == 30
    result = stage.result()
    assert result.count("Normal BurstMoved runs at cloud") == 30
    assert result.count("Normal BurstFinished has ended at cloud") == 30
    assert stage.home.requests <= 30 * 12
    assert stage.cloud.requests <= 30 * 6


BAD: list[tuple[str, Object, str]] = [
    ("secret in a volume", {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "cloud has no secret s"),
    ("secret in env", {"container": {"envFrom": [{"secretRef": {"name": "s"}}]}}, "cloud has no secret s"),
    ("pull secret", {"imagePullSecrets": [{"name": "p"}]}, "cloud has no secret p"),
    ("config map", {"volumes": [{"name": "v", "configMap": {"name": "m"}}]}, "cloud has no config map m"),
    (
        "volume claim",
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        "cloud has no volume claim c",
    ),
    ("host path", {"volumes": [{"name": "v", "hostPath": {"path": "/data"}}]}, "hostPath /data"),
    ("service account", {"serviceAccountName": "trainer"}, "cloud has no service account trainer"),
    ("runtime class", {"runtimeClassName": "gvisor"}, "cloud has no runtime class gvisor"),
    (
        "claim template",
        {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpus"}]},
        "cloud has no claim template gpus",
    ),
    ("claim", {"resourceClaims": [{"name": "g", "resourceClaimName": "one"}]}, "cloud has no claim one"),
    (
        "device class as a resource",
        {"container": {"resources": {"requests": {"cpu": "1", "deviceclass.resource.kubernetes.io/gpu": "1"}}}},
        "cloud has no device class gpu",
    ),
    ("no requests", {"container": {"resources": {}}}, "has no requests"),
]


@pytest.mark.parametrize("what,spec,why", BAD, ids=[what for what, _, _ in BAD])
async def test_what_the_target_lacks_keeps_a_job_at_home(what: str, spec: Object, why: str) -> None:
    stage = Stage()
    key = stage.submit(fit("a", **spec))
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(4)
    assert ledger(stage.world.home, "a") == {}  # it was never touched
    assert why in stage.mover.reasons[key]
    assert any(line.startswith("Warning BurstRefused stays at home") and why in line for line in stage.result())
    assert why in stage.mover.refusal(stage.world.home.jobs["default/a"]["metadata"]["uid"], "cloud")


async def test_a_job_with_a_selector_of_its_own_or_of_kueue_stays_at_home() -> None:
    """Its Pods cannot be distinguished from others; Kueue would start it again while it is away."""
    stage = Stage()
    selected, queued = fit("selected"), fit("queued")
    selected["spec"]["manualSelector"] = True
    queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "q"
    keys = [stage.submit(selected), stage.submit(queued)]
    for key in keys:
        stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(4)
    assert not stage.world.cloud.jobs
    assert "selector of its own" in stage.mover.reasons[keys[0]]
    assert "Kueue" in stage.mover.reasons[keys[1]]


@pytest.mark.parametrize(
    "home,why",
    [
        ({}, "neither home nor cloud has secret s"),
        ({"type": "kubernetes.io/service-account-token"}, "secret s has type kubernetes.io/service-account-token"),
        ({"type": "Opaque"}, ""),
    ],
)
async def test_what_may_be_copied_is_checked_before_the_job_is_held(home: Object, why: str) -> None:
    stage = Stage()
    stage.target.route = replace(stage.target.route, copy=("secrets",))
    if home:
        stage.home.objects["/api/v1/namespaces/default/secrets/s"] = {"metadata": {"name": "s"}, **home}
    key = stage.submit(fit("a", imagePullSecrets=[{"name": "s"}]))
    found = home_job(stage.world.home.jobs["default/a"], SEAL)
    assert (await stage.mover.obstacle(found, stage.target, stage.target.route)).startswith(why)
    assert bool(await stage.mover.obstacle(found, stage.target, stage.target.route)) == bool(why)
    assert key == ("default", "a")


async def test_a_missing_namespace_keeps_a_job_at_home() -> None:
    stage = Stage()
    del stage.cloud.objects["/api/v1/namespaces/default"]
    key = stage.submit(fit("a"))
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(4)
    assert stage.mover.reasons[key] == "cloud has no namespace default"


async def test_another_job_of_that_name_keeps_it_at_home_and_is_asked_once() -> None:
    stage = Stage()
    stage.world.cloud.handle(Request(False, "POST", JOBS, fit("a")))
    key = stage.submit(fit("a"))
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(10, work=False)
    assert ledger(stage.world.home, "a")["state"] == "home"
    assert stage.world.home.jobs["default/a"]["spec"]["parallelism"] == 1
    assert [line for line in stage.result() if "another Job of this name" in line]


async def test_a_silent_target_starts_nothing_at_home() -> None:
    stage = Stage()
    key = stage.submit(fit("a"))
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(6, work=False)
    assert ledger(stage.world.home, "a")["state"] == "away"
    stage.cloud.silent = True
    for _ in range(3):
        stage.mover.look(key)
        await stage.go(3, work=False)
    assert ledger(stage.world.home, "a")["state"] == "away"
    assert not stage.world.home.pods
    stage.world.home.handle(Request(True, "DELETE", f"{JOBS}/a", {}))
    await stage.go(3, work=False)
    assert "default/a" in stage.world.home.jobs  # Terminating until the copy is known to be gone
    assert "cannot be reached" in stage.mover.reasons[key]
    stage.cloud.silent = False
    stage.mover.look(key)
    await stage.go(10)
    assert not stage.world.home.jobs
    assert not stage.world.cloud.jobs


async def test_the_copy_of_a_forgotten_job_is_deleted_when_its_target_is_back() -> None:
    """Nobody wishes anything of that Job any more: it runs at home."""
    stage = Stage()
    key = stage.submit(fit("a"))
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(6, work=False)
    stage.cloud.silent, stage.target.silent_since_s = True, 0.0
    stage.mover.wish(key, Intent.FORGET, "cloud")
    await stage.go(4, work=False)
    assert ledger(stage.world.home, "a")["state"] == "home"
    assert "default/a" in stage.world.cloud.jobs
    stage.cloud.silent, stage.target.silent_since_s = False, None
    await stage.go(4, work=False)
    assert not stage.world.cloud.jobs


async def test_a_target_that_was_never_seen_is_not_written_to() -> None:
    stage = Stage()
    stage.target.known = False
    key = stage.submit(fit("a"))
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(4)
    assert ledger(stage.world.home, "a") == {}
    assert stage.mover.reasons[key] == "cloud is not known yet"


async def test_a_target_that_is_not_configured_any_more_is_reported() -> None:
    stage = Stage()
    key = stage.submit(fit("a"))
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(6, work=False)
    stage.mover.targets = {}
    await stage.go(3, work=False)
    assert "not configured any more" in stage.mover.reasons[key]


async def test_an_older_version_of_a_watch_is_not_believed() -> None:
    stage = Stage()
    key = stage.submit(fit("a"))
    old = home_job(stage.world.home.history[stage.world.home.jobs["default/a"]["metadata"]["uid"]][0], SEAL)
    stage.mover.saw(home_job(stage.world.home.jobs["default/a"], SEAL))
    stage.mover.saw(old)
    assert stage.mover.jobs[key].version != old.version


def test_a_job_of_a_cronjob_moves_without_its_owner_and_its_time_to_live() -> None:
    from carico_agent.burst.objects import copy_body

    body = fit("a")
    body["metadata"] |= {
        "uid": "u",
        "resourceVersion": "1",
        "ownerReferences": [{"kind": "CronJob", "name": "c", "controller": True}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "yes"},
    }
    body["spec"] |= {"ttlSecondsAfterFinished": 5, "selector": {"matchLabels": {"controller-uid": "u"}}}
    body["spec"]["template"]["metadata"]["labels"] = {"controller-uid": "u", "job-name": "a", "app": "a"}
    made = copy_body(home_job(body, SEAL), "home-id", "default", False)
    assert "ownerReferences" not in made["metadata"]
    assert made["metadata"]["annotations"].keys() == {"mine", "carico.dev/burst-origin"}
    assert "ttlSecondsAfterFinished" not in made["spec"]
    assert "selector" not in made["spec"]
    assert made["spec"]["parallelism"] == 0
    assert made["spec"]["template"]["metadata"]["labels"].keys() == {
        "app",
        "carico.dev/burst-origin",
        "carico.dev/burst-home",
    }
    assert "carico.dev/burst" not in made["metadata"]["labels"]
