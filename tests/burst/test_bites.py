"""Does the harness see what it is there to see? Weakened movers, and the thesis' order of steps, on the same model."""

import pytest

from carico_agent.burst.objects import JobFacts
from carico_agent.burst.protocol import Intent
from carico_agent.burst.steps import Request
from tests.burst.model import job
from tests.burst.test_steps import KEY, SUSPENDS, moved, waiting
from tests.burst.world import World

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def start_everything(world: World) -> None:
    for cluster in world.clusters:
        for pod in list(cluster.pods):
            cluster.bind(pod)
            cluster.start(pod)


def controller_with_an_old_cache(world: World) -> None:
    """Somebody deletes the waiting Pod, and the controller, which has not read the hold, replaces it."""
    home = world.home
    uid = home.jobs[KEY]["metadata"]["uid"]
    for _ in range(3):
        mover = world.mover(KEY, Intent.MOVE)
        assert mover is not None
        world.run(mover)
        for pod in list(home.pods.values()):
            home._end(pod)
    home.sync(uid, 0)
    for there in list(world.cloud.history):
        world.cloud.sync(there, 1000)
    start_everything(world)


@SUSPENDS
def test_without_waiting_for_the_controller_a_job_runs_twice(
    monkeypatch: pytest.MonkeyPatch, suspends: tuple[bool, bool]
) -> None:
    monkeypatch.setattr(JobFacts, "stopped", lambda self, by_suspend: True)
    world = waiting(suspends=suspends)
    controller_with_an_old_cache(world)
    with pytest.raises(AssertionError, match="running twice"):
        world.check()


@SUSPENDS
def test_with_it_the_same_scene_is_harmless(suspends: tuple[bool, bool]) -> None:
    world = waiting(suspends=suspends)
    controller_with_an_old_cache(world)
    world.check()
    world.run_until_quiet()
    world.check_end({KEY: 1})


def test_a_release_without_reading_home_again_runs_a_job_twice() -> None:
    """The last request of a mover, sent without its guard after the Job was recalled."""
    world = waiting()
    for _ in range(2):
        mover = world.mover(KEY, Intent.MOVE)
        assert mover is not None
        while mover.request is not None and not (not mover.request.home and mover.request.method == "PATCH"):
            mover.answer(world.apply(mover.request))
        world.home.sync(world.home.jobs[KEY]["metadata"]["uid"], 1000)
    late = mover.request
    assert late is not None
    assert late.body is not None
    for _ in range(2):
        recall = world.mover(KEY, Intent.RECALL)
        assert recall is not None
        while recall.request is not None and recall.request.method != "DELETE":
            recall.answer(world.apply(recall.request))
    assert world.apply(late).status == 409
    del late.body["metadata"]["resourceVersion"]
    world.apply(late)
    for cluster in world.clusters:
        for uid in list(cluster.history):
            cluster.sync(uid, 1000)
    start_everything(world)
    with pytest.raises(AssertionError, match="running twice"):
        world.check()


def test_copy_then_delete_runs_a_job_twice() -> None:
    """The thesis' order (4.5): the home Pod gets a node between the copy and the deletion."""
    world = waiting()
    uid = world.home.jobs[KEY]["metadata"]["uid"]
    body = job("a")
    body["spec"]["template"]["metadata"]["labels"] = {"carico.dev/burst-origin": uid}
    world.cloud.handle(Request(False, "POST", JOBS, body))
    for there in list(world.cloud.history):
        world.cloud.sync(there, 10)
    start_everything(world)
    with pytest.raises(AssertionError, match="running twice"):
        world.check()


def test_a_whole_move_in_that_order_of_events_does_not() -> None:
    world = waiting()
    start_everything(world)
    moved(world)
    start_everything(world)
    world.check()
    world.run_until_quiet()
    world.check_end({KEY: 1})
