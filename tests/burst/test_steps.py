"""One move from end to end on the model, killed after every request, with lost answers, and with two movers."""

import itertools

import pytest

from carico_agent.burst.objects import CopyState, copy_job
from carico_agent.burst.protocol import Action, Intent
from carico_agent.burst.steps import Request, ServerAnswer
from tests.burst.model import job, ledger
from tests.burst.world import World

KEY = "default/a"


NONE, BOTH = (False, False), (True, True)
SUSPENDS = pytest.mark.parametrize("suspends", [NONE, BOTH, (True, False), (False, True)], ids=str)
"""Which of home and cloud hold Jobs by `suspend`; the other does by `parallelism: 0`."""


def waiting(parallelism: int = 1, completions: int = 1, suspends: tuple[bool, bool] = NONE) -> World:
    """A Job whose Pods wait at home."""
    world = World()
    world.home.suspends, world.cloud.suspends = suspends
    world.home.handle(
        Request(True, "POST", "/apis/batch/v1/namespaces/default/jobs", job("a", parallelism, completions))
    )
    world.home.sync(world.home.jobs[KEY]["metadata"]["uid"], 10)
    return world


def moved(world: World, rounds: int = 3) -> None:
    """Until the copy is released."""
    for _ in range(rounds):
        mover = world.mover(KEY, Intent.MOVE)
        assert mover is not None
        world.run(mover)
        for cluster in world.clusters:
            for uid in list(cluster.history):
                cluster.sync(uid, 1000)


@SUSPENDS
def test_a_move_takes_few_requests(suspends: tuple[bool, bool]) -> None:
    world = waiting(suspends=suspends)
    moved(world)
    assert ledger(world.home, "a")["state"] == "away"
    assert copy_job(world.cloud.jobs[KEY]).state == CopyState.RELEASED
    world.run_until_quiet()
    world.check_end({KEY: 1})
    home = [request for request in world.requests if request.home]
    cloud = [request for request in world.requests if not request.home]
    assert len(home) <= 10
    assert len(cloud) <= 6


@SUSPENDS
@pytest.mark.parametrize("lost", [False, True], ids=["killed", "answer-lost"])
@pytest.mark.parametrize("wish", [Intent.MOVE, Intent.RECALL])
@pytest.mark.parametrize("n", range(14))
def test_killed_after_every_request(n: int, wish: Intent, lost: bool, suspends: tuple[bool, bool]) -> None:
    """`lost`: the request is applied and its answer never seen; else it is never sent."""
    world = waiting(2, 3, suspends)
    if wish == Intent.RECALL:
        moved(world)
    left = n
    for _ in range(8):  # the mover is called again and again; once, after n requests in all, it dies
        left = world.run_or_die(KEY, wish, left, lost)
        world.work_on()
        world.check()
    world.run_until_quiet()
    world.check_end({KEY: 3})


@pytest.mark.long
def test_two_movers_in_every_order() -> None:
    for order in itertools.product((0, 1), repeat=9):
        world = waiting()
        first = world.mover(KEY, Intent.MOVE)
        assert first is not None
        world.run(first)
        world.home.sync(world.home.jobs[KEY]["metadata"]["uid"], 1000)
        movers = [world.mover(KEY, Intent.MOVE), world.mover(KEY, Intent.RECALL)]
        for which in order:
            mover = movers[which]
            assert mover is not None
            if mover.request is not None:
                mover.answer(world.apply(mover.request))
            world.check()
        world.run_until_quiet()
        world.check_end({KEY: 1})


def test_a_pod_that_got_a_node_keeps_the_job_at_home() -> None:
    world = waiting(2, 2)
    world.home.bind(next(iter(world.home.pods)))
    mover = world.mover(KEY, Intent.MOVE)
    assert mover is not None
    outcome = world.run(mover)
    assert outcome is not None
    assert "have a node already" in outcome.verdict.why
    assert ledger(world.home, "a") == {}


def test_a_pod_bound_during_hold_is_gone_before_the_copy_is_made() -> None:
    world = waiting()
    mover = world.mover(KEY, Intent.MOVE)
    assert mover is not None
    pod = next(iter(world.home.pods))
    world.run(mover, 1)  # the LIST
    world.home.bind(pod)
    world.run(mover)  # held
    world.home.start(pod)
    world.home.sync(world.home.jobs[KEY]["metadata"]["uid"], 1000)
    again = world.mover(KEY, Intent.MOVE)
    assert again is not None
    outcome = world.run(again)
    assert outcome is not None
    assert "still there" in outcome.verdict.why
    assert not world.cloud.jobs
    world.run_until_quiet(Intent.MOVE)
    world.check_end({KEY: 1})


def test_another_job_of_that_name_is_left_alone() -> None:
    world = waiting()
    world.cloud.handle(Request(False, "POST", "/apis/batch/v1/namespaces/default/jobs", job("a")))
    moved(world, 2)
    assert ledger(world.home, "a")["state"] == "home"
    assert "another Job of this name" in ledger(world.home, "a")["note"]
    assert world.home.jobs[KEY]["spec"]["parallelism"] == 1
    assert not copy_job(world.cloud.jobs[KEY]).origin


def test_deleting_the_home_job_deletes_the_copy_first() -> None:
    world = waiting()
    moved(world)
    pod = next(iter(world.cloud.pods))
    world.cloud.bind(pod)
    world.cloud.start(pod)
    world.home.handle(Request(True, "DELETE", "/apis/batch/v1/namespaces/default/jobs/a", {}))
    assert KEY in world.home.jobs  # the finalizer
    mover = world.mover(KEY, Intent.KEEP)
    assert mover is not None
    outcome = world.run(mover)
    assert outcome is not None
    assert "being deleted" in outcome.verdict.why
    assert KEY in world.home.jobs
    world.run_until_quiet(work=False)
    assert not world.home.jobs
    assert not world.cloud.jobs
    assert not world.cloud.running


def test_a_recall_brings_it_home_and_a_late_release_is_refused() -> None:
    world = waiting()
    for _ in range(2):
        mover = world.mover(KEY, Intent.MOVE)
        assert mover is not None
        while mover.request is not None and not (not mover.request.home and mover.request.method == "PATCH"):
            mover.answer(world.apply(mover.request))
        world.home.sync(world.home.jobs[KEY]["metadata"]["uid"], 1000)
    assert mover.request is not None  # it has read "away" and is about to release
    world.run_until_quiet(Intent.RECALL, rounds=5, work=False)
    assert ledger(world.home, "a")["state"] == "home"
    assert world.apply(mover.request).status in (404, 409)
    world.run_until_quiet()
    world.check_end({KEY: 1})


def test_a_fenced_target_is_forgotten_and_its_copy_deleted_when_it_returns() -> None:
    world = waiting()
    moved(world)
    world.cloud.pods.clear()  # fenced: nothing runs there
    forget = world.mover(KEY, Intent.FORGET)
    assert forget is not None
    world.run(forget)
    assert ledger(world.home, "a")["state"] == "home"
    assert ledger(world.home, "a")["epoch"] == 2
    gone = world.collector(KEY)
    assert gone is not None
    world.run(gone)
    world.run_until_quiet()
    world.check_end({KEY: 1})


def test_a_mover_that_was_slow_does_not_release_what_was_abandoned_meanwhile() -> None:
    """It has committed and is about to release; then a human says that the target is fenced, and home starts."""
    world = waiting()
    for _ in range(2):
        slow = world.mover(KEY, Intent.MOVE)
        assert slow is not None
        while slow.request is not None and ledger(world.home, "a").get("state") != "away":
            slow.answer(world.apply(slow.request))
        world.home.sync(world.home.jobs[KEY]["metadata"]["uid"], 1000)
    assert slow.request is not None
    assert (slow.request.home, slow.request.method) == (True, "GET")
    forget = world.mover(KEY, Intent.FORGET)
    assert forget is not None
    world.run(forget)
    assert ledger(world.home, "a")["state"] == "home"
    since = len(world.requests)
    world.run(slow)
    assert [request.method for request in world.requests[since:] if not request.home] == []
    assert copy_job(world.cloud.jobs[KEY]).state != CopyState.RELEASED


def test_somebody_who_starts_it_at_home_while_it_is_away_is_stopped() -> None:
    world = waiting()
    moved(world)
    world.home.handle(Request(True, "PATCH", "/apis/batch/v1/namespaces/default/jobs/a", {"spec": {"parallelism": 3}}))
    mover = world.mover(KEY, Intent.KEEP)
    assert mover is not None
    world.run(mover)
    assert world.home.jobs[KEY]["spec"]["parallelism"] == 0
    assert "started it at home" in ledger(world.home, "a")["note"]


def test_a_copy_that_somebody_deleted_is_not_started_again_by_itself() -> None:
    world = waiting()
    moved(world)
    world.cloud.handle(Request(False, "DELETE", "/apis/batch/v1/namespaces/default/jobs/a", {}))
    world.run_until_quiet(work=False)
    assert ledger(world.home, "a")["state"] == "away"
    assert not world.home.running
    world.run_until_quiet(Intent.RECALL)
    world.check_end({KEY: 1})


def test_an_edited_ledger_is_an_error() -> None:
    world = waiting()
    meta = {"annotations": {"carico.dev/burst-ledger": '{"state":"elsewhere"}'}}
    world.home.handle(Request(True, "PATCH", "/apis/batch/v1/namespaces/default/jobs/a", {"metadata": meta}))
    with pytest.raises(ValueError, match="burst did not write the annotation"):
        world.mover(KEY, Intent.MOVE)


def test_an_answer_is_an_answer() -> None:
    assert ServerAnswer(404).body == {}


def test_a_release_that_was_refused_is_not_counted() -> None:
    """The target's controller writes the copy's status between its reading and its release."""
    world = waiting()
    done: list[Action] = []
    for _ in range(3):
        mover = world.mover(KEY, Intent.MOVE)
        assert mover is not None
        while mover.request is not None:
            first_release = not mover.request.home and mover.request.method == "PATCH" and Action.RELEASE not in done
            if first_release and len(world.cloud.history[world.cloud.jobs[KEY]["metadata"]["uid"]]) == 1:
                world.cloud.handle(Request(False, "PATCH", mover.request.path, {"metadata": {"labels": {"a": "b"}}}))
            mover.answer(world.apply(mover.request))
        assert mover.outcome is not None
        done += mover.outcome.done
        world.home.sync(world.home.jobs[KEY]["metadata"]["uid"], 1000)
    assert done.count(Action.RELEASE) == 1
    assert len([one for one in world.requests if not one.home and one.method == "PATCH"]) == 2
