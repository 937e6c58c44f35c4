"""The watches by which a mover notices what has changed: Jobs at home, copies at the targets."""

import asyncio
import logging
from typing import Any

from carico_agent.burst.mover import Mover
from carico_agent.burst.objects import HOME_LABEL, CopyJob, HomeJob, copy_job, home_job
from carico_agent.burst.seal import Seal
from carico_agent.burst.steps import jobs_path
from carico_agent.burst.target import Target
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.watch import ResourceWatch

log = logging.getLogger(__name__)


async def follow(watch: ResourceWatch[Any], client: KubeClient) -> None:
    """Run a watch; begin it again when the way to its cluster has changed."""
    while True:
        generation = client.generation
        watching = asyncio.ensure_future(watch.run())
        try:
            while client.generation == generation and not watching.done():
                await asyncio.sleep(0.2)
            if watching.done():
                await watching
        finally:
            watching.cancel()
        watch.begin_again()


def watches(mover: Mover, selector: str, namespaces: tuple[str, ...]) -> list[ResourceWatch[HomeJob | None]]:
    """The watches of the home Jobs with this label, in these namespaces or everywhere."""
    paths = [jobs_path(namespace) for namespace in namespaces] or ["/apis/batch/v1/jobs"]
    return [_home_watch(mover, path, selector) for path in paths]


def _home_watch(mover: Mover, path: str, selector: str) -> ResourceWatch[HomeJob | None]:
    prefix = path.removeprefix("/apis/batch/v1/namespaces/").partition("/")[0] if "/namespaces/" in path else ""

    def snapshot(jobs: list[HomeJob | None]) -> None:
        there = {(job.namespace, job.name) for job in jobs if job is not None}
        for key in [key for key in mover.jobs if key not in there and prefix in ("", key[0])]:
            mover.lost(key)
        for job in jobs:
            event(False, job)

    def event(gone: bool, job: HomeJob | None) -> None:
        if job is None:
            return
        if gone:
            mover.lost((job.namespace, job.name))
            mover.look((job.namespace, job.name))  # it may only have lost its label
        else:
            mover.saw(job)

    def read(job: Object) -> HomeJob | None:
        return read_home(job, mover.seal)

    return ResourceWatch(mover.home, path, read, snapshot, event, mover.home_health, labels=selector)


def read_home(job: Object, seal: Seal) -> HomeJob | None:
    """A Job of a watch; one whose ledger burst did not write is left alone, and logged once per change."""
    try:
        return home_job(job, seal)
    except ValueError as error:
        log.warning("%s", error)
        return None


def target_watches(mover: Mover, target: Target) -> list[ResourceWatch[CopyJob]]:
    """The copies at one target that came from this home cluster: in the namespaces to which Jobs may move, so that a
    Role in each of them is enough, or everywhere if all may."""
    route = target.route
    namespaces = sorted({route.namespace(home) for home in route.homes})
    return [_copies_watch(mover, target, namespace) for namespace in namespaces or [""]]


def _copies_watch(mover: Mover, target: Target, namespace: str) -> ResourceWatch[CopyJob]:
    def snapshot(copies: list[CopyJob]) -> None:
        for key in [key for key, copy in target.copies.items() if namespace in ("", copy.namespace)]:
            del target.copies[key]
        for copy in copies:
            mover.saw_copy(target, copy)

    def event(gone: bool, copy: CopyJob) -> None:
        mover.saw_copy(target, copy, gone)

    labels = f"{HOME_LABEL}={target.route.home_id}"
    path = jobs_path(namespace) if namespace else "/apis/batch/v1/jobs"
    return ResourceWatch(target.client, path, copy_job, snapshot, event, target.health, labels=labels)
