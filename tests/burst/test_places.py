"""Where a copy is, is written down: targets and namespaces that are configured anew, copies that come late."""

from dataclasses import replace
from typing import Any

import pytest

from carico_agent.burst.objects import CopyState, copy_job, home_job
from carico_agent.burst.protocol import Action, Intent, Suspends, Verdict
from carico_agent.burst.steps import MoveOutcome, Request, reconcile
from tests.burst.model import SEAL, ledger
from tests.burst.test_mover import Stage, fit
from tests.burst.test_steps import KEY, moved, waiting
from tests.burst.world import Mover, World

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def driven(world: World, wish: Intent, **route: Any) -> MoveOutcome:
    """One run of a mover whose route is configured differently."""
    steps = reconcile(home_job(world.home.jobs[KEY], SEAL), wish, replace(world.route, **route))
    outcome = world.run(Mover(steps))
    assert outcome is not None
    return outcome


@pytest.mark.parametrize("wish", [Intent.KEEP, Intent.MOVE, Intent.RECALL])
def test_another_cluster_under_the_name_of_the_target_is_not_taken_for_it(wish: Intent) -> None:
    """It has no copy, which proves nothing: the one that has may run it."""
    world = waiting()
    moved(world)
    there, world.cloud.jobs = world.cloud.jobs, {}
    outcome = driven(world, wish, cluster="new-id")
    assert "which is another one now" in outcome.verdict.why
    assert ledger(world.home, "a")["state"] == "away"
    world.cloud.jobs = there
    world.run_until_quiet()
    world.check_end({KEY: 1})


def test_a_deleted_job_waits_for_the_cluster_it_is_in_or_is_forgotten() -> None:
    world = waiting()
    moved(world)
    world.home.handle(Request(True, "DELETE", f"{JOBS}/a", {}))
    driven(world, Intent.KEEP, cluster="new-id")
    assert KEY in world.home.jobs
    world.cloud.pods.clear()  # fenced
    driven(world, Intent.FORGET, cluster="")
    assert KEY not in world.home.jobs
    world.run_until_quiet()
    assert not world.cloud.jobs


def test_a_hold_for_a_cluster_that_was_exchanged_is_undone() -> None:
    world = waiting()
    mover = world.mover(KEY, Intent.MOVE)
    assert mover is not None
    world.run(mover, 2)
    assert ledger(world.home, "a")["state"] == "holding"
    outcome = driven(world, Intent.KEEP, cluster="new-id")
    assert outcome.job is not None
    assert ledger(world.home, "a")["state"] == "home"
    assert "another cluster now" in ledger(world.home, "a")["note"]
    world.run_until_quiet()
    world.check_end({KEY: 1})


def test_a_namespace_that_is_configured_anew_is_not_taken_for_the_one_of_the_copy() -> None:
    """Nothing is done where the ledger says and the configuration does not; with the old configuration it goes on."""
    world = waiting()
    moved(world)
    pod = next(iter(world.cloud.pods))
    world.cloud.bind(pod)
    world.cloud.start(pod)
    outcome = driven(world, Intent.RECALL, namespaces={"default": "other"})
    assert "its copy is in namespace default at cloud, the configuration leads elsewhere now" in outcome.verdict.why
    assert ledger(world.home, "a")["state"] == "away"
    driven(world, Intent.RECALL)
    assert copy_job(world.cloud.jobs[KEY]).state == CopyState.SEALED
    assert ledger(world.home, "a")["state"] == "recalling"
    world.run_until_quiet()
    world.check_end({KEY: 1})


def test_a_copy_that_is_created_late_is_deleted_and_not_released() -> None:
    """The first copy ran and was deleted by somebody; then a creation arrives that was under way all the time."""
    world = waiting()
    moved(world)
    create = next(one for one in world.requests if not one.home and one.method == "POST")
    world.cloud.handle(Request(False, "DELETE", f"{JOBS}/a", {}))
    world.cloud.collect_garbage()
    assert world.apply(create).status == 201
    mover = world.mover(KEY, Intent.KEEP)
    assert mover is not None
    outcome = world.run(mover)
    assert outcome is not None
    assert not any(one.method == "PATCH" and not one.home for one in world.requests[-4:])
    assert outcome.done == (Action.DELETE_COPY,)
    assert outcome.verdict == Verdict(Action.WAIT, "its copy at cloud is being deleted by another client")


def test_a_server_that_drops_suspend_holds_the_copy_all_the_same() -> None:
    """One of several API servers that are being upgraded says that it knows `suspend`; another takes the copy."""
    world = waiting()
    claims = Suspends(target=True)
    for _ in range(2):
        steps = Mover(
            reconcile(home_job(world.home.jobs[KEY], SEAL), Intent.MOVE, replace(world.route, suspends=claims))
        )
        while steps.request is not None and KEY not in world.cloud.jobs:
            steps.answer(world.apply(steps.request))
        world.home.sync(world.home.jobs[KEY]["metadata"]["uid"], 1000)
    assert "suspend" not in world.cloud.jobs[KEY]["spec"]
    for uid in list(world.cloud.history):
        world.cloud.sync(uid, 1000)
    assert not world.cloud.pods
    world.run_until_quiet()
    world.check_end({KEY: 1})


async def test_two_namespaces_at_home_share_one_at_the_target() -> None:
    """A copy is found by the namespace it names, so it is not taken for one whose Job is gone."""
    stage = Stage()
    stage.target.route = replace(stage.target.route, namespaces={"default": "shared", "other": "shared"})
    stage.cloud.objects["/api/v1/namespaces/shared"] = {}
    key = stage.submit(fit("a"))
    stage.mover.wish(key, Intent.MOVE, "cloud")
    await stage.go(6, work=False)
    assert list(stage.world.cloud.jobs) == ["shared/a"]
    assert stage.target.copies[key].namespace == "shared"
    await stage.go()
    assert ledger(stage.world.home, "a")["state"] == "done"
