"""How an extender that does not lead has a Pod placed: it asks the leader, in a Lease that all extenders watch.

Slower than being the leader, by two writes for all who ask at the same time. So clients should talk to the leader where
they can (its Pod carries a label for that, deploy/base/30-extender.yaml); but extenders on loopback, each beside its
own kube-scheduler, cannot reach each other, and a Service sends a few requests to the old leader after a change.

Why it is kept, in numbers: without it a replica that does not lead could only refuse, so a kube-scheduler beside it
would bind 0 Pods per second until the leadership happens to move there. With it 235 Pods per second were bound, against
348 through the leader and 555 without any webhook (lab/bench/throughput.py, 500 nodes, 600 Pods, Kubernetes 1.36, one
round).

The Lease has an annotation per asking extender with its open questions, and one of the leader's with the answers to
them. An answer stays as long as its question.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.lib.kube.leases import lease_object, leases_path
from carico_agent.lib.kube.placement_lease import MALFORMED, QUESTIONS_LEASE
from carico_agent.lib.kube.pods import is_name
from carico_agent.lib.net.times import boottime_s

log = logging.getLogger(__name__)

ASKED_BY = "questions.carico.dev/"
ANSWERS = "carico.dev/answers"
MAX_QUESTIONS = 500
"""Questions of one extender that are looked at: a Lease may have some 250 kB."""
AGAIN_S = 0.5
DECIDE_S = 2.0
"""For one decision [s]: the extender that asks gives up after 4 s."""
OLD_S = 10.0
"""A question that we have seen for longer is of an extender that is gone, or gave up [s]."""


class Question(NamedTuple):
    """May this Pod be bound there?"""

    verb: str
    """"bind" or "admit": by which rule."""
    namespace: str
    name: str
    uid: str
    node: str


Decide = Callable[[Question], Awaitable[str | None]]
"""The leader's decision: why not; None if it may. Raises KubeError when that cannot be known."""


class LeaderQuestions:
    """Both sides. The caller shows it the Lease as its watch sees it, and runs `run`."""

    def __init__(self, client: KubeClient, namespace: str, identity: str, leads: Callable[[], bool]) -> None:
        """`leads`: whether it is us who answer."""
        self._client, self._identity, self._leads = client, identity, leads
        self._path = leases_path(namespace)
        self._serials = count(1)
        self._open: dict[str, tuple[Question, asyncio.Future[str | None]]] = {}  # ours, by serial
        self._others: dict[str, Question] = {}  # open questions of the other extenders, by "extender/serial"
        self._seen_s: dict[str, float] = {}  # since when we have seen them
        self._answers: dict[str, str] = {}  # ours to them, as the leader: why not; empty if it may
        self._changed: set[str] = set()  # annotations of ours that are to be written
        self._wakeup = asyncio.Event()

    async def ask(self, question: Question) -> str | None:
        """Why not; None if it may. Waits for the leader: give it a timeout."""
        serial = str(next(self._serials))
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._open[serial] = question, future
        self._write(ASKED_BY + self._identity)
        try:
            return await future
        finally:
            del self._open[serial]
            if not self._open:
                self._write(ASKED_BY + self._identity)

    # ---- what the watch shows

    def seen(self, lease: Object) -> None:
        annotations = lease["metadata"].get("annotations") or {}
        if self._open:
            self._take_answers(_dictionary(annotations.get(ANSWERS)))
        self._others = {
            f"{extender}/{serial}": question
            for key, text in annotations.items()
            if key.startswith(ASKED_BY) and (extender := key.removeprefix(ASKED_BY)) != self._identity
            for serial, question in _questions(text)
        }
        now_s = boottime_s()
        self._seen_s = {key: self._seen_s.get(key, now_s) for key in self._others}
        self._answers = {key: why for key, why in self._answers.items() if key in self._others}
        if self._others:
            self._wakeup.set()

    def _take_answers(self, answers: Object) -> None:
        for serial, (_, future) in self._open.items():
            why = answers.get(f"{self._identity}/{serial}")
            if isinstance(why, str) and not future.done():
                future.set_result(why or None)

    # ---- answering, as the leader

    async def _answer_new(self, decide: Decide) -> None:
        """Decide about all questions that are new."""
        if not self._leads():
            return
        old_s = boottime_s() - OLD_S
        new = [key for key in self._others if key not in self._answers and self._seen_s[key] > old_s]
        self._remove_old({key for key, seen_s in self._seen_s.items() if seen_s <= old_s})
        found = await asyncio.gather(*(_decide_one(decide, self._others[key]) for key in new))
        self._answers |= dict(zip(new, found, strict=True))
        if new:
            self._write(ANSWERS)

    def _remove_old(self, old: set[str]) -> None:
        """Take away what extenders that are gone have left."""
        for extender in {_extender(key) for key in old} - {_extender(key) for key in self._others if key not in old}:
            self._write(ASKED_BY + extender)

    # ---- writing

    def _write(self, annotation: str) -> None:
        self._changed.add(annotation)
        self._wakeup.set()

    async def run(self, decide: Decide) -> None:
        """Until it is cancelled: one write at a time for all open questions. `decide` answers them as the leader."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            await self._answer_new(decide)
            if not self._changed:
                continue
            annotations = {name: self._text(name) for name in self._changed}
            try:
                await self._put(annotations)
                self._changed.difference_update(name for name, text in annotations.items() if text == self._text(name))
            except KubeError as error:
                log.warning("this extender cannot write its questions to the leader: %s", error)
                await asyncio.sleep(AGAIN_S)
            if self._changed:
                self._wakeup.set()

    def _text(self, annotation: str) -> str | None:
        if annotation == ANSWERS:
            return json.dumps(self._answers, separators=(",", ":"))
        own = annotation == ASKED_BY + self._identity
        questions = {serial: question for serial, (question, _) in self._open.items()} if own else {}
        return json.dumps(questions, separators=(",", ":")) if questions else None

    async def _put(self, annotations: dict[str, str | None]) -> None:
        try:
            await self._client.patch(f"{self._path}/{QUESTIONS_LEASE}", {"metadata": {"annotations": annotations}})
        except Refused as refused:
            if refused.status != 404:
                raise
            present = {name: text for name, text in annotations.items() if text is not None}
            meta = {"name": QUESTIONS_LEASE, "annotations": present}
            await self._client.post(self._path, lease_object(meta, {}))


async def _decide_one(decide: Decide, question: Question) -> str:
    try:
        async with asyncio.timeout(DECIDE_S):
            return await decide(question) or ""
    except KubeError as error:
        return f"the leading extender cannot know: {error}"
    except TimeoutError:
        return f"the leading extender could not know within {DECIDE_S:g} s"


def _extender(key: str) -> str:
    return key.rpartition("/")[0]


def _dictionary(text: object) -> Object:
    try:
        found = json.loads(str(text or "{}"))
    except MALFORMED:
        return {}
    return found if isinstance(found, dict) else {}


def _questions(text: object) -> list[tuple[str, Question]]:
    """Those of one extender. Malformed ones count as none.

    >>> _questions('{"1":["bind","d","p","u","a"],"2":["bind","d","../x","u","a"],"3":7}')
    [('1', Question(verb='bind', namespace='d', name='p', uid='u', node='a'))]
    """
    found = []
    for serial, parts in list(_dictionary(text).items())[:MAX_QUESTIONS]:
        if isinstance(parts, list) and len(parts) == 5 and all(isinstance(part, str) for part in parts):
            question = Question(*parts)
            if all(map(is_name, (question.namespace, question.name, question.node))):
                found.append((serial, question))
    return found
