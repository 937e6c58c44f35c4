"""Moves many Jobs at once, driven by watches of both sides; the protocol itself is in `protocol` and `steps`.

Nothing here must survive a restart. A Job is looked at again when it or its copy changes, when what it waits for may
have happened, and every RESYNC_S anyway.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace

from carico_agent.burst.choice import DATA
from carico_agent.burst.events import EVENTS, JobEvents
from carico_agent.burst.job_logs import LogKeeper
from carico_agent.burst.lacks import checks
from carico_agent.burst.link import WAITS, Link, drive
from carico_agent.burst.models import Models
from carico_agent.burst.objects import CopyJob, HomeJob, State, home_job
from carico_agent.burst.protocol import UNREAD, Action, Intent, Verdict
from carico_agent.burst.seal import Seal
from carico_agent.burst.steps import MoveOutcome, Request, Route, collect, jobs_path, orphan, reconcile
from carico_agent.burst.target import Key, Target
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.health import Health

log = logging.getLogger(__name__)

WORKERS = 24
RESYNC_S = 30.0
REFUSED_S = 300.0
"""For how long a target that refused a Job is not asked again for it."""
CHECKED_S = 30.0
"""For how long an object that the target has is not looked up again."""
IN_FLIGHT = (State.HOLDING, State.AWAY, State.RECALLING, State.RETURNED)

_FULFILS: dict[Intent, tuple[State, ...]] = {
    Intent.KEEP: (),
    Intent.MOVE: (State.AWAY,),
    Intent.STAY: (State.RETURNED,),
    Intent.RECALL: (State.RECALLING, State.RETURNED),
    Intent.FORGET: (),
}
"""States from which a Job goes on without anybody wishing."""


@dataclass
class Mover:
    """`run` runs until it is cancelled; `wish` says what shall happen to a Job."""

    home: KubeClient
    targets: dict[str, Target]
    events: JobEvents
    seal: Seal
    logs: LogKeeper | None = None
    """Keeps what copies printed. None: logs are deleted with the copies."""
    models: Models | None = None
    """Knows where the data of Jobs lies. None: no Job's data is resolved."""
    home_health: Health = field(default_factory=lambda: Health("home"))
    jobs: dict[Key, HomeJob] = field(default_factory=dict)
    reasons: dict[Key, str] = field(default_factory=dict)
    """Why a Job stands still, for `status`."""
    moved: int = 0
    finished: int = 0

    def __post_init__(self) -> None:
        self._wishes: dict[Key, tuple[Intent, str]] = {}
        self._refused: dict[tuple[str, str], tuple[float, str]] = {}  # Job UID, target → until, why
        self._dirty: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._busy: set[Key] = set()
        self._waits: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    # ---- what others say

    def saw(self, job: HomeJob) -> None:
        """From a watch. Versions of one object grow; an older one than we know of is not looked at."""
        key = job.namespace, job.name
        known = self.jobs.get(key)
        if known is not None and known.uid == job.uid and _older(job.version, known.version):
            return
        self.jobs[key] = job
        if job.ledger.state in IN_FLIGHT or job.guarded or key in self._wishes:
            self.look(key)

    def lost(self, key: Key) -> None:
        self.jobs.pop(key, None)
        self._wishes.pop(key, None)
        self.reasons.pop(key, None)
        self._waits.pop(key, None)

    def saw_copy(self, target: Target, copy: CopyJob, gone: bool = False) -> None:
        key = self._home_key(copy)
        if gone:
            target.copies.pop(key, None)
        else:
            target.copies[key] = copy
        self.look(key)

    @staticmethod
    def _home_key(copy: CopyJob) -> Key:
        """As the copy has it: two namespaces at home may share one at the target."""
        return copy.home_namespace or copy.namespace, copy.name

    def wish(self, key: Key, wish: Intent, to: str) -> None:
        self._wishes[key] = wish, to
        self.look(key)

    def wished(self, key: Key) -> bool:
        return key in self._wishes

    def wished_target(self, key: Key) -> str:
        """Where this Job shall go, if anywhere."""
        return self._wishes.get(key, (Intent.KEEP, ""))[1]

    def refusal(self, uid: str, to: str) -> str:
        """Why this target does not take this Job, while that is remembered."""
        until_s, why = self._refused.get((uid, to), (0.0, ""))
        return why if time.monotonic() < until_s else ""

    def look(self, key: Key, after_s: float = 0.0) -> None:
        """Look at this Job, now or later; the earlier of both."""
        if after_s > 0:
            if key not in self._timers and key not in self._queued:
                loop = asyncio.get_running_loop()
                self._timers[key] = loop.call_later(after_s, self._due, key)
            return
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if key not in self._queued:
            self._queued.add(key)
            self._dirty.put_nowait(key)

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.look(key)

    # ---- work

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())
            group.create_task(self._resync())

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_S)
            now_s = time.monotonic()
            self._refused = {pair: entry for pair, entry in self._refused.items() if entry[0] > now_s}
            keys = {key for key, job in self.jobs.items() if job.ledger.state in IN_FLIGHT}
            for key in keys.union(*(target.copies for target in self.targets.values())):
                self.look(key)

    async def _work(self) -> None:
        while True:
            key = await self._dirty.get()
            self._queued.discard(key)
            if key in self._busy:
                self.look(key, 0.1)
                continue
            self._busy.add(key)
            try:
                await self._one(key)
            except (KubeError, ValueError) as error:  # ValueError: a ledger that burst did not write
                self.reasons[key] = str(error)
                self._again(key)
            finally:
                self._busy.discard(key)

    def _again(self, key: Key) -> None:
        self._waits[key] = self._waits.get(key, 0) + 1
        self.look(key, WAITS.delay_s(self._waits[key]))

    async def _one(self, key: Key) -> None:
        job = self.jobs.get(key) or await self._fetch(key)
        for other in self.targets.values():
            if other.silent_since_s is None and (copy := other.copies.get(key)) is not None and orphan(copy, job):
                await self._collect(other, key, copy)
        if job is None:
            return
        wish, to = self._wishes.get(key, (Intent.KEEP, ""))
        target_name = job.ledger.to if job.ledger.state in IN_FLIGHT else to
        target = self.targets.get(target_name)
        if target is None:
            if job.ledger.state in IN_FLIGHT:
                self.reasons[key] = f"it is at {target_name}, which is not configured any more"
            return
        if wish != Intent.FORGET and (not target.known or target.silent_since_s is not None):
            # not even tried: a target that is away must not keep workers from the others
            self.reasons[key] = f"{target.name} does not answer" if target.known else f"{target.name} is not known yet"
            self._again(key)
            return
        begins = job.ledger.state not in IN_FLIGHT and wish == Intent.MOVE
        held = job.ledger.state == State.HOLDING and wish != Intent.FORGET
        route, why = target.route, ""
        if begins or held:
            route = await self._route(job, target)
            why = await self.obstacle(job, target, route)
        if begins and why:
            self._refuse(key, job, target, why)
            return
        outcome = await self._reconcile(target, job, wish, why, route)
        if outcome.verdict.action == Action.MIRROR and outcome.job is not None and self.logs is not None:
            self._after(key, target, outcome)
            outcome = await self._take_home(target, outcome.job, wish)
        self._after(key, target, outcome)

    async def _take_home(self, target: Target, job: HomeJob, wish: Intent) -> MoveOutcome:
        """The logs of a copy that has ended, then its result."""
        assert self.logs is not None
        if why := await self.logs.keep(job, target.reader or target.client):
            return MoveOutcome(job, Verdict(Action.WAIT, why))
        return await self._reconcile(target, job, wish, "", target.route)

    async def _route(self, job: HomeJob, target: Target) -> Route:
        """The way of this very Job, with the place of its data. Raises ValueError while that is not known."""
        if self.models is None or DATA not in (job.whole["metadata"].get("annotations") or {}):
            return target.route
        return replace(target.route, data=await asyncio.to_thread(self.models.now, job))

    async def _reconcile(self, target: Target, job: HomeJob, wish: Intent, refusal: str, route: Route) -> MoveOutcome:
        try:
            copy = target.copies.get((job.namespace, job.name), UNREAD)
            logs_kept = self.logs is None or self.logs.has(job)
            steps = reconcile(job, wish, route, copy, refusal, logs_kept)
            outcome = await drive(steps, Link(self.home, target.client).send)
        except KubeError:
            self.jobs.pop((job.namespace, job.name), None)  # a write may have been applied: read it again
            raise
        return outcome

    async def _fetch(self, key: Key) -> HomeJob | None:
        answer = await Link(self.home, self.home).send(Request(True, "GET", jobs_path(*key)))
        if answer.status == 404:
            return None
        self.jobs[key] = job = home_job(answer.body, self.seal)
        return job

    async def _collect(self, target: Target, key: Key, copy: CopyJob) -> None:
        why = await drive(collect(copy, key[0], target.route), Link(self.home, target.client).send)
        if why:
            log.info("%s/%s at %s deleted: %s", copy.namespace, copy.name, target.name, why)

    def _after(self, key: Key, target: Target, outcome: MoveOutcome) -> None:
        """What a look has changed: what is known, events, when to look again."""
        job, verdict = outcome.job, outcome.verdict
        if job is None:
            self.lost(key)
            return
        if key not in self.jobs or not _older(job.version, self.jobs[key].version):
            self.jobs[key] = job
        if verdict.why:
            self.reasons[key] = verdict.why
        else:
            self.reasons.pop(key, None)
        for action in outcome.done:
            self.moved += action == Action.RELEASE
            self.finished += action == Action.MIRROR
            if (event := EVENTS.get(action)) is not None:
                self.events.add(job, event, target.name, job.ledger.note)
        if Action.UNDO in outcome.done:
            self._refuse(key, job, target, job.ledger.note)
        if job.ledger.state in (State.HOME, State.DONE, *_FULFILS[self._wishes.get(key, (Intent.KEEP, ""))[0]]):
            self._wishes.pop(key, None)
        if outcome.done:
            self._waits.pop(key, None)
        if verdict.action == Action.WAIT or (verdict.action != Action.NOTHING and not outcome.done):
            self._again(key)

    def _refuse(self, key: Key, job: HomeJob, target: Target, why: str) -> None:
        """It stays at home, for now."""
        if self.refusal(job.uid, target.name) != why:
            self.events.add(job, "BurstRefused", target.name, why)
        self._refused[job.uid, target.name] = time.monotonic() + REFUSED_S, why
        self.reasons[key] = why
        self._wishes.pop(key, None)

    async def obstacle(self, job: HomeJob, target: Target, route: Route | None = None) -> str:
        """Why this Job may not go there, or what the target lacks that it names, or nothing. `route`: with the place
        of its data; None: it reads none."""
        route = route or target.route
        if why := route.obstacle(job):
            return why
        now_s = time.monotonic()
        async for one in checks(job, route, self.home, target.client, target.exists, now_s):
            if one.why_not:
                return one.why_not
            if len(target.exists) > 1000:
                target.exists.clear()
            if one.last and not one.copied:
                target.exists[one.path] = now_s + CHECKED_S
        return ""


def _older(one: str, other: str) -> bool:
    return one.isdigit() and other.isdigit() and int(one) < int(other)
