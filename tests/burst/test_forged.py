"""Users who write what only burst may write, and things that answer in the place of an API server."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from carico_agent.burst.link import Link, drive
from carico_agent.burst.objects import FINALIZER, LEDGER, HomeJob, MoveRecord, State, copy_job, home_job
from carico_agent.burst.protocol import Intent
from carico_agent.burst.seal import Seal
from carico_agent.burst.seal_secret import load_seal, read_seal
from carico_agent.burst.steps import Request, Route, collect, reconcile
from carico_agent.lib.kube.errors import KubeError, Refused, Unreachable
from tests.burst.fake_client import FakeClient
from tests.burst.model import SEAL, Cluster, Object, job, ledger
from tests.burst.test_mover import Stage, fit
from tests.burst.test_steps import KEY, moved, waiting
from tests.burst.world import ROUTE, Mover, World

JOBS = "/apis/batch/v1/namespaces/default/jobs"
HELD = MoveRecord(State.HOLDING, "cloud", 1, 1, cluster="cloud-id", namespace="default")


def forged(record: MoveRecord, seal: Seal | None, **spec: Any) -> Object:
    """A suspended Job with a ledger in flight, as the exploit of issue 37 has it."""
    body = job("a")
    body["metadata"]["finalizers"] = [FINALIZER]
    text = json.dumps(asdict(record)) if seal is None else seal.sealed(asdict(record), ("default", "a", "home-0"))
    body["metadata"]["annotations"] = {LEDGER: text}
    body["spec"] |= {"parallelism": 0}
    body["spec"]["template"]["spec"] |= spec
    return body


def posted(body: Object) -> World:
    world = World()
    world.home.handle(Request(True, "POST", JOBS, body))
    return world


@pytest.mark.parametrize("seal", [None, Seal(b"another key".ljust(32))], ids=["none", "of another key"])
async def test_a_ledger_that_burst_did_not_write_moves_nothing(seal: Seal | None) -> None:
    stage = Stage()
    stage.submit(forged(HELD, seal))
    with pytest.raises(ValueError, match="burst did not write"):
        home_job(stage.world.home.jobs[KEY], SEAL)
    stage.mover.look(("default", "a"))
    stage.mover.wish(("default", "a"), Intent.MOVE, "cloud")
    await stage.mover_only()
    assert stage.cloud.requests == 0
    assert "burst did not write" in stage.mover.reasons["default", "a"]


def test_a_ledger_of_another_job_does_not_hold() -> None:
    world = posted(forged(HELD, SEAL))
    home_job(world.home.jobs[KEY], SEAL)  # this one does
    other = json.loads(json.dumps(world.home.jobs[KEY]).replace("home-0", "home-1"))
    with pytest.raises(ValueError, match="seal does not hold"):
        home_job(other, SEAL)


PRIVILEGED = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}, "securityContext": {}}]}
PRIVILEGED["containers"][0]["securityContext"] = {"privileged": True}
ROOT = {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}

REFUSED: list[tuple[str, MoveRecord, Route, Object, str]] = [
    ("namespace of the ledger", MoveRecord(**{**asdict(HELD), "namespace": "kube-system"}), ROUTE, {}, "elsewhere now"),
    ("no namespace", MoveRecord(**{**asdict(HELD), "namespace": ""}), ROUTE, {}, "elsewhere now"),
    ("no cluster", MoveRecord(**{**asdict(HELD), "cluster": ""}), ROUTE, {}, "another cluster now"),
    (
        "a target without identity",
        HELD,
        Route("home-id", "cloud", seal=SEAL),
        {},
        "which cluster cloud is, is not known",
    ),
    (
        "no cluster, and a target without identity",
        MoveRecord(**{**asdict(HELD), "cluster": ""}),
        Route("home-id", "cloud", seal=SEAL),
        {},
        "which cluster cloud is, is not known",
    ),
    ("hostPath", HELD, ROUTE, ROOT, "hostPath /"),
    ("privileged", HELD, ROUTE, PRIVILEGED, "container c is privileged"),
    ("host's network", HELD, ROUTE, {"hostNetwork": True}, "wants the node itself"),
    ("no requests", HELD, ROUTE, {"containers": [{"name": "c"}]}, "has no requests"),
    (
        "namespace that does not move",
        HELD,
        Route("home-id", "cloud", cluster="cloud-id", seal=SEAL, homes=("shop",)),
        {},
        "Jobs of namespace default do not move",
    ),
    (
        "kube-system",
        MoveRecord(**{**asdict(HELD), "namespace": "kube-system"}),
        Route("home-id", "cloud", namespaces={"default": "kube-system"}, cluster="cloud-id", seal=SEAL),
        {},
        "control plane",
    ),
]


@pytest.mark.parametrize("what,record,route,spec,why", REFUSED, ids=[row[0] for row in REFUSED])
def test_every_check_is_made_before_every_creation(
    what: str, record: MoveRecord, route: Route, spec: Object, why: str
) -> None:
    """Also for a Job that is in flight already, sealed or not: an old ledger may have been put back."""
    world = posted(forged(record, SEAL, **spec))
    for _ in range(3):
        world.home.sync("home-0", 1000)
        world.run(Mover(reconcile(home_job(world.home.jobs[KEY], SEAL), Intent.KEEP, route)))
    assert not world.cloud.history, "nothing was ever created there"
    assert why in ledger(world.home, "a")["note"]
    assert ledger(world.home, "a")["state"] == "home"


async def test_what_the_target_lacks_is_looked_up_again_for_a_job_that_is_held() -> None:
    stage = Stage()
    body = forged(HELD, SEAL, volumes=[{"name": "v", "secret": {"secretName": "gone"}}])
    key = stage.submit(body)
    await stage.go(4, work=False)
    assert not stage.world.cloud.history
    assert "cloud has no secret gone" in ledger(stage.world.home, "a")["note"]
    assert key in stage.mover.jobs


# ---- what answers in the place of an API server


class Between:
    """A load balancer before an API server. `answers`: what it says by itself, by method and end of path."""

    generation = 0

    def __init__(self, inner: FakeClient, answers: dict[tuple[str, str], Object | Exception]) -> None:
        self.inner, self.answers, self.access = inner, answers, type("Access", (), {"server": "https://lb"})

    async def request(self, method: str, path: str, *rest: Any) -> Object:
        for (verb, end), answer in self.answers.items():
            if verb == method and path.endswith(end):
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return await self.inner.request(method, path, *rest)


BACKEND = Refused(404, "default backend - 404")
OTHER = Refused(
    404,
    "not found",
    cause={"kind": "Status", "reason": "NotFound", "details": {"name": "b", "kind": "jobs", "group": "batch"}},
)
NO_GROUP = Refused(404, "could not find the requested resource", cause={"kind": "Status", "reason": "NotFound"})
ODD: list[Object | Exception] = [BACKEND, OTHER, NO_GROUP, {}, {"kind": "Status", "status": "Success"}]
NAMES = ["default backend", "another Job", "no such group", "empty", "a Status"]


def link(world: World, home: dict[Any, Any], cloud: dict[Any, Any]) -> Link:
    clients = Between(FakeClient(world.home), home), Between(FakeClient(world.cloud), cloud)
    return Link(*clients)  # type: ignore[arg-type]


def seen(world: World) -> HomeJob:
    return home_job(world.home.jobs[KEY], SEAL)


@pytest.mark.parametrize("odd", ODD, ids=NAMES)
async def test_a_404_of_a_load_balancer_is_not_an_empty_list(odd: Object | Exception) -> None:
    """Pods are still at home: read as none, the copy would be created and released beside them."""
    world = waiting()
    mover = world.mover(KEY, Intent.MOVE)
    assert mover is not None
    world.run(mover, 2)
    pod = next(iter(world.home.pods))
    world.home.bind(pod)
    world.home.start(pod)
    world.home.sync("home-0", 1000)
    assert seen(world).ledger.state == State.HOLDING
    with pytest.raises(KubeError):
        await drive(reconcile(seen(world), Intent.KEEP, ROUTE), link(world, {("GET", "/pods"): odd}, {}).send)
    assert not world.cloud.jobs


@pytest.mark.parametrize("odd", ODD, ids=NAMES)
async def test_a_404_from_home_deletes_no_copy(odd: Object | Exception) -> None:
    world = waiting()
    moved(world)
    copy = copy_job(world.cloud.jobs[KEY])
    with pytest.raises(KubeError):
        await drive(collect(copy, "default", ROUTE), link(world, {("GET", "/jobs/a"): odd}, {}).send)
    assert KEY in world.cloud.jobs


@pytest.mark.parametrize("odd", ODD, ids=NAMES)
async def test_a_404_from_the_target_starts_nothing_at_home(odd: Object | Exception) -> None:
    """A recall that reads neither copy nor Pods would start the Job at home beside the copy."""
    world = waiting()
    moved(world)
    there: dict[tuple[str, str], Object | Exception] = {("GET", "/jobs/a"): odd, ("GET", "/pods"): odd}
    with pytest.raises(KubeError):
        await drive(reconcile(seen(world), Intent.RECALL, ROUTE), link(world, {}, there).send)
    assert seen(world).ledger.state == State.AWAY


async def test_an_absence_that_the_api_server_states_is_believed() -> None:
    world = waiting()
    moved(world)
    copy = copy_job(world.cloud.jobs[KEY])
    world.home.jobs.clear()
    assert await drive(collect(copy, "default", ROUTE), link(world, {}, {}).send) == "its Job at home is gone"
    assert world.cloud.jobs[KEY]["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("status", [403, 404, 409])
async def test_a_creation_that_a_proxy_refused_is_tried_again(status: int) -> None:
    """Not an answer of the target: it is neither read as refused for good nor as there already."""
    world = posted(forged(HELD, SEAL))
    proxy: dict[tuple[str, str], Object | Exception] = {("POST", "/jobs"): Refused(status, "<html>")}
    with pytest.raises(Refused):
        await drive(reconcile(seen(world), Intent.KEEP, ROUTE), link(world, {}, proxy).send)
    assert seen(world).ledger.state == State.HOLDING


# ---- the key


async def test_one_key_is_made_and_kept() -> None:
    client = FakeClient(Cluster("home"))
    assert await read_seal(client, "carico-burst") is None  # type: ignore[arg-type]
    one = await load_seal(client, "carico-burst")  # type: ignore[arg-type]
    assert await load_seal(client, "carico-burst") == one == await read_seal(client, "carico-burst")  # type: ignore[arg-type]
    assert len(one.key) == 32


async def test_the_empty_secret_of_the_manifest_is_filled() -> None:
    client = FakeClient(Cluster("home"))
    path = "/api/v1/namespaces/carico-burst/secrets/carico-burst-seal"
    client.objects[path] = {"metadata": {"name": "carico-burst-seal", "resourceVersion": "7"}}
    one = await load_seal(client, "carico-burst")  # type: ignore[arg-type]
    assert await read_seal(client, "carico-burst") == one  # type: ignore[arg-type]


async def test_a_key_that_cannot_be_read_is_an_error_and_not_a_new_key() -> None:
    client = FakeClient(Cluster("home"))
    client.silent = True
    with pytest.raises(Unreachable):
        await load_seal(client, "carico-burst")  # type: ignore[arg-type]
    client.silent = False
    path = "/api/v1/namespaces/carico-burst/secrets/carico-burst-seal"
    client.objects[path] = {"metadata": {"name": "s", "resourceVersion": "7"}, "data": {"key": "c2hvcnQ="}}
    with pytest.raises(KubeError, match="not 32 bytes"):
        await load_seal(client, "carico-burst")  # type: ignore[arg-type]


def test_fit_has_all_that_a_job_needs_to_leave() -> None:
    body = fit("a")
    body["metadata"]["uid"] = "u"
    assert ROUTE.obstacle(home_job(body, SEAL)) == ""
