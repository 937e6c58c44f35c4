"""What a target lacks of the objects that a Job names, asked of its API server."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from carico_agent.burst.copied_objects import KINDS, may_copy, why_not_copied
from carico_agent.burst.objects import HomeJob
from carico_agent.burst.requirements import Needed, needed
from carico_agent.burst.steps import Route
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import Refused


@dataclass(frozen=True)
class Checked:
    """One object: how it comes to the target, or why it does not."""

    what: Needed
    path: str
    why_not: str = ""
    copied: bool = False
    """Burst brings it from home."""
    last: bool = True
    """It names no further objects."""


async def checks(
    job: HomeJob,
    route: Route,
    home: KubeClient,
    target: KubeClient,
    known: dict[str, float] | None = None,
    now_s: float = 0.0,
) -> AsyncIterator[Checked]:
    """Every object that the Job names. `known`: until when the target is believed to have it, by path.

    Raises KubeError when a server does not answer, ValueError when the Job cannot be prepared.
    """
    namespace = route.namespace(job.namespace)
    open_ = needed(route.prepared(job.whole), namespace)
    while open_:
        one = open_.pop(0)
        path = one.path(namespace)
        if now_s < (known or {}).get(path, 0.0):
            continue
        try:
            more = one.names(await target.get(path))
        except Refused as refused:
            yield await _missing(one, path, refused, job, route, home)
            continue
        open_ += more
        yield Checked(one, path, last=not more)


async def _missing(one: Needed, path: str, refused: Refused, job: HomeJob, route: Route, home: KubeClient) -> Checked:
    if refused.status == 429 or refused.status >= 500:
        raise refused
    if not refused.says_absent(path):
        return Checked(one, path, f"{route.to}: {refused}")
    if not may_copy(one, route.copy):
        return Checked(one, path, f"{route.to} has no {one.kind} {one.name}{_advice(one)}")
    at_home = one.path(job.namespace)
    try:
        why = why_not_copied(one, await home.get(at_home))
    except Refused as other:
        if other.status == 429 or other.status >= 500:
            raise
        absent = f"neither home nor {route.to} has {one.kind} {one.name}"
        why = absent if other.says_absent(at_home) else f"{one.kind} {one.name} cannot be copied: {other}"
    return Checked(one, path, why, copied=not why)


def _advice(one: Needed) -> str:
    """What an operator or user can do about it."""
    if one.kind in KINDS:
        return f' (the target\'s setting copy = ["{KINDS[one.kind][0]}"] lets burst bring it)'
    if one.kind == "volume claim":
        return " (what is in a volume stays in its cluster: put it into a bucket, carico.dev/data)"
    return ""
