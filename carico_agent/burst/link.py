"""Requests of a move, sent: the generator of `steps` on two API servers."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

from carico_agent.burst.objects import HomeJob, Object, State, home_job
from carico_agent.burst.protocol import Action, Intent
from carico_agent.burst.steps import MoveOutcome, Request, Route, ServerAnswer, jobs_path, reconcile
from carico_agent.lib.kube.client import MERGE, KubeClient
from carico_agent.lib.kube.errors import Refused, Unreachable
from carico_agent.lib.supervise.backoff import Backoff

T = TypeVar("T")
Send = Callable[[Request], Awaitable[ServerAnswer]]

WAITS = Backoff(first_s=0.2, factor=1.6, max_s=3.0)
"""Between two polls while a controller or a kubelet acts: most Pods that have no node are gone within 0.2 s."""

ANSWERS = {"jobs": "Job", "configmaps": "ConfigMap", "secrets": "Secret"}
"""The objects that the protocol reads and writes, by their collection."""

REFUSED_COPY = (400, 403, 404, 422)
"""Statuses with which an API server refuses a copy for good."""


class Link:
    """A pair of API servers. Raises KubeError when one does not answer, or answers what the protocol does not know."""

    def __init__(self, home: KubeClient, target: KubeClient) -> None:
        self._home, self._target = home, target
        self._generation = target.generation

    async def send(self, request: Request) -> ServerAnswer:
        client = self._home if request.home else self._target
        if not request.home and client.generation != self._generation:
            # what was read came from another cluster, perhaps
            raise Unreachable("the way to the target was changed in the middle of a move")
        headers = {"Content-Type": MERGE} if request.method == "PATCH" else None
        try:
            body = await client.request(request.method, request.path, request.body, headers, request.params or None)
        except Refused as refused:
            if _believed(request, refused):
                return ServerAnswer(refused.status, {"message": str(refused)})
            raise
        if not _answers(request, body):
            what = f"{request.method} {request.path} with {str(body)[:100]}"
            raise Unreachable(f"{client.access.server} is no API server: it answers {what}")
        return ServerAnswer(200, body)


def _believed(request: Request, refused: Refused) -> bool:
    """Whether a refusal is an API server's own, and part of the protocol. A 404 of anything else between us would read
    as "there is no such Job" and delete a copy that runs, or as "there are no Pods" and start a Job twice."""
    if not refused.cause:
        return False
    if request.method == "POST":
        return refused.status == 409 or refused.status in REFUSED_COPY
    return refused.status == 409 or refused.says_absent(request.path)


def _answers(request: Request, body: Object) -> bool:
    """Whether this is what was asked for: a list of Pods that says it is one, or the object of that name."""
    if request.path.endswith("/pods"):
        return body.get("kind") == "PodList" and "items" in body
    if request.method == "DELETE" and body.get("kind") == "Status":
        return True
    meta, parts = body.get("metadata") or {}, request.path.split("/")
    place = 7 if parts[1] == "apis" else 6
    name = (request.body or {})["metadata"]["name"] if request.method == "POST" else parts[place]
    return body.get("kind") == ANSWERS[parts[place - 1]] and meta.get("name") == name and bool(meta.get("uid"))


async def drive(steps: Generator[Request, ServerAnswer, T], send: Send) -> T:
    """Run a generator of requests to its end."""
    try:
        request = next(steps)
        while True:
            request = steps.send(await send(request))
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()


async def carry(
    namespace: str,
    name: str,
    wish: Intent,
    route: Route,
    send: Send,
    until: set[State],
    keep: Callable[[HomeJob], Awaitable[bool]] | None = None,
) -> MoveOutcome | None:
    """Look at one Job again and again until its ledger has one of these states; None when it is gone.

    What stands in the way for good (not: what others still have to do) is the outcome too. `keep`: keeps the logs of a
    Job whose copy has ended; until it says that it has, the result is not taken home.
    """
    waits = 0
    while True:
        answer = await send(Request(True, "GET", jobs_path(namespace, name)))
        if answer.status == 404:
            return None
        job = home_job(answer.body, route.seal)
        outcome = await drive(reconcile(job, wish, route, logs_kept=keep is None), send)
        if outcome.verdict.action == Action.MIRROR and outcome.job is not None and keep and await keep(outcome.job):
            outcome = await drive(reconcile(outcome.job, wish, route), send)
        if outcome.job is None:
            return None
        if outcome.job.ledger.state in until:
            return outcome
        if outcome.verdict.action == Action.NOTHING and outcome.verdict.why:
            return outcome
        waits = 0 if outcome.done else waits + 1
        await asyncio.sleep(WAITS.delay_s(max(1, waits)))
