"""ConfigMaps and Secrets go with a Job where that is allowed, and go away with its copy; killed after every request."""

from dataclasses import replace
from typing import Any

import pytest

from carico_agent.burst.objects import home_job
from carico_agent.burst.protocol import Intent
from carico_agent.burst.steps import Request
from tests.burst import world as worlds
from tests.burst.model import SEAL, Cluster, Object, job, ledger
from tests.burst.world import ROUTE, World

KEY, SPACE = "default/a", "/api/v1/namespaces/default"
BOTH = ("configmaps", "secrets")
NAMES: Object = {
    "volumes": [{"name": "v", "configMap": {"name": "params"}}],
    "imagePullSecrets": [{"name": "pull"}],
}


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "ROUTE", replace(ROUTE, copy=BOTH))


def put(cluster: Cluster, kind: str, name: str, **more: Any) -> None:
    body = {"metadata": {"name": name}, "data": {"k": f"{cluster.name}'s"}, **more}
    cluster.handle(Request(True, "POST", f"{SPACE}/{kind}", body))


def waiting(world: World, name: str = "a", completions: int = 1) -> None:
    body = job(name, 1, completions)
    body["spec"]["template"]["spec"] |= NAMES
    world.home.handle(Request(True, "POST", "/apis/batch/v1/namespaces/default/jobs", body))
    world.home.sync(world.home.jobs[f"default/{name}"]["metadata"]["uid"], 10)


def stage(home: bool = True) -> World:
    world = World()
    world.home.suspends = world.cloud.suspends = True
    if home:
        put(world.home, "configmaps", "params")
        put(world.home, "secrets", "pull", type="kubernetes.io/dockerconfigjson")
    waiting(world)
    return world


def moved(world: World, name: str = "a", rounds: int = 3) -> None:
    for _ in range(rounds):
        mover = world.mover(f"default/{name}", Intent.MOVE)
        assert mover is not None
        world.run(mover)
        for cluster in world.clusters:
            for uid in list(cluster.history):
                cluster.sync(uid, 1000)


def data(world: World) -> dict[str, str]:
    return {path.removeprefix(SPACE): found["data"]["k"] for path, found in world.cloud.objects.items()}


def test_they_are_there_before_the_job_starts_and_go_with_its_copy() -> None:
    world = stage()
    moved(world)
    assert ledger(world.home, "a")["state"] == "away"
    assert data(world) == {"/configmaps/params": "home's", "/secrets/pull": "home's"}
    uid = world.cloud.jobs[KEY]["metadata"]["uid"]
    for found in world.cloud.objects.values():
        assert [one["uid"] for one in found["metadata"]["ownerReferences"]] == [uid]
    world.run_until_quiet()
    world.check_end({KEY: 1})
    world.cloud.collect_garbage()
    assert world.cloud.objects == {}


@pytest.mark.parametrize("lost", [False, True], ids=["killed", "answer-lost"])
@pytest.mark.parametrize("wish", [Intent.MOVE, Intent.RECALL])
@pytest.mark.parametrize("n", range(22))
def test_killed_after_every_request(n: int, wish: Intent, lost: bool) -> None:
    world = stage()
    if wish == Intent.RECALL:
        moved(world)
    left = n
    for _ in range(8):
        left = world.run_or_die(KEY, wish, left, lost)
        complete_when_released(world)
        world.work_on()
        world.check()
    world.run_until_quiet()
    world.check_end({KEY: 1})
    world.cloud.collect_garbage()
    assert world.cloud.objects == {}


def complete_when_released(world: World) -> None:
    """A copy that may run has all that it names."""
    copy = world.cloud.jobs.get(KEY)
    if copy is not None and not copy["spec"].get("suspend") and copy["spec"]["parallelism"]:
        assert set(data(world)) == {"/configmaps/params", "/secrets/pull"}


def test_an_object_of_the_target_is_used_as_it_is() -> None:
    world = stage()
    put(world.cloud, "configmaps", "params")
    moved(world)
    assert data(world)["/configmaps/params"] == "cloud's"
    world.run_until_quiet()
    world.cloud.collect_garbage()
    assert data(world) == {"/configmaps/params": "cloud's"}


def test_two_jobs_share_one_and_the_last_takes_it_away() -> None:
    world = stage()
    waiting(world, "b")
    moved(world)
    home = world.home.objects[f"{SPACE}/configmaps/params"]
    home["data"] = {"k": "newer"}
    moved(world, "b")
    assert data(world)["/configmaps/params"] == "newer"
    assert len(world.cloud.objects[f"{SPACE}/configmaps/params"]["metadata"]["ownerReferences"]) == 2
    del world.cloud.jobs[KEY]
    world.cloud.collect_garbage()
    assert set(data(world)) == {"/configmaps/params", "/secrets/pull"}


REFUSED: list[tuple[str, Any, str]] = [
    ("home has none", lambda w: w.home.objects.pop(f"{SPACE}/configmaps/params"), "neither home nor the target has"),
    (
        "a service account's token",
        lambda w: w.home.objects[f"{SPACE}/secrets/pull"].update(type="kubernetes.io/service-account-token"),
        "which is not copied",
    ),
    (
        "copied from another namespace",
        lambda w: put(w.cloud, "configmaps", "params", metadata=stranger()),
        "copied from namespace bank",
    ),
]


def stranger() -> Object:
    origin = '{"home":"home-id","namespace":"bank"}'
    return {"name": "params", "annotations": {"carico.dev/burst-origin": origin}}


@pytest.mark.parametrize("change,why", [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_cannot_come_along_sends_the_job_back(change: Any, why: str) -> None:
    """Found only when the Job is held: what is checked before is in test_mover."""
    world = stage()
    change(world)
    moved(world)
    assert why in ledger(world.home, "a")["note"]
    world.run_until_quiet(work=False)
    assert ledger(world.home, "a")["state"] == "home"
    assert KEY not in world.cloud.jobs
    assert world.home.jobs[KEY]["spec"]["suspend"] is False


def test_only_data_is_taken() -> None:
    world = stage()
    secret = world.home.objects[f"{SPACE}/secrets/pull"]
    secret["metadata"] |= {"labels": {"admin": "yes"}, "annotations": {"x": "y"}, "finalizers": ["f"]}
    secret["immutable"] = True
    moved(world)
    there = world.cloud.objects[f"{SPACE}/secrets/pull"]
    assert there["type"] == "kubernetes.io/dockerconfigjson"
    assert set(there["metadata"]["annotations"]) == {"carico.dev/burst-origin"}
    assert not {"labels", "finalizers"} & set(there["metadata"])
    assert "immutable" not in there


def test_nothing_is_asked_for_where_copying_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "ROUTE", ROUTE)
    world = stage()
    moved(world)
    assert not [request for request in world.requests if request.path.startswith("/api/v1/namespaces/default/secrets")]
    assert world.cloud.objects == {}


def test_a_route_names_what_goes_along() -> None:
    world = stage()
    found = home_job(world.home.jobs[KEY], SEAL)
    kinds = {one.kind for one in replace(ROUTE, copy=("secrets",)).taken_along(found.whole)}
    assert kinds == {"secret"}
