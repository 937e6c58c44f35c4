"""The home cluster's etcd is restored from a backup in the middle of a move: its Jobs go back in time, the target's do
not. At which moment the backup was made, and how far the copy was, is tried in all combinations."""

import copy

import pytest

from carico_agent.burst.protocol import Intent
from tests.burst.model import Cluster, ledger
from tests.burst.test_steps import BOTH, KEY, NONE, moved, waiting
from tests.burst.world import World

SUSPENDS = pytest.mark.parametrize("suspends", [NONE, BOTH], ids=str)
WISHES = pytest.mark.parametrize("wish", [Intent.KEEP, Intent.MOVE, Intent.STAY])
COPIES = pytest.mark.parametrize("at_target", ["released", "runs", "succeeded"])
BACKUPS = range(2, 14)
"""Requests of the move before the backup is made; with two the Job is held."""


def backup_after(world: World, requests: int) -> Cluster:
    """The home cluster as it is after that many requests of a move."""
    for _ in range(4):
        mover = world.mover(KEY, Intent.MOVE)
        assert mover is not None
        world.run(mover, max(0, requests - len(world.requests)))
        sync(world)
    return copy.deepcopy(world.home)


def sync(world: World) -> None:
    for cluster in world.clusters:
        for uid in list(cluster.history):
            cluster.sync(uid, 1000)


def advance(world: World, at_target: str) -> None:
    moved(world, 6)
    assert ledger(world.home, "a")["state"] == "away"
    for pod in list(world.cloud.pods) if at_target != "released" else ():
        world.cloud.bind(pod)
        world.cloud.start(pod)
        if at_target == "succeeded":
            world.finish(world.cloud, pod)
    sync(world)


@SUSPENDS
@WISHES
@COPIES
@pytest.mark.parametrize("requests", BACKUPS)
def test_a_job_that_was_held_or_away_runs_once(
    requests: int, at_target: str, wish: Intent, suspends: tuple[bool, bool]
) -> None:
    """Before, a held Job that should stay was started at home while its copy ran."""
    world = waiting(suspends=suspends)
    backup = backup_after(world, requests)
    assert ledger(backup, "a")["state"] in ("holding", "away")
    advance(world, at_target)
    world.home = backup
    mover = world.mover(KEY, wish, copy_version=-1)  # the watch of the target shows the copy
    assert mover is not None
    world.run(mover)
    world.run_until_quiet(Intent.KEEP)
    world.check()
    world.check_end({KEY: 1})
    assert sum(world.succeeded.values()) == 1


@SUSPENDS
def test_a_job_that_was_away_and_is_over_waits_for_a_human(suspends: tuple[bool, bool]) -> None:
    """Whether it succeeded is not known any more: nothing starts it by itself."""
    world = waiting(suspends=suspends)
    backup = backup_after(world, 13)
    assert ledger(backup, "a")["state"] == "away"
    moved(world, 6)
    world.run_until_quiet()
    world.check_end({KEY: 1})
    assert not world.cloud.jobs
    world.home = backup
    world.run_until_quiet(Intent.STAY)
    assert ledger(world.home, "a")["state"] == "away" and not world.home.running
    assert sum(world.succeeded.values()) == 1
