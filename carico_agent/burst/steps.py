"""From actions to requests: one Job's move as a generator that yields requests and is sent answers. No I/O.

The same code is driven by the mover against API servers and by the tests against a model that kills it after every
request. It keeps nothing between two runs: everything is read again or guarded by the version that was read.
"""

from collections.abc import Generator
from dataclasses import dataclass, field, replace

from carico_agent.burst import objects
from carico_agent.burst.choice import Data
from carico_agent.burst.copied_objects import may_copy, take_along
from carico_agent.burst.inject import DataSteps, models_of, prepared
from carico_agent.burst.objects import CopyJob, CopyState, HomeJob, MoveRecord, Object, State, copy_job, home_job
from carico_agent.burst.protocol import (
    UNREAD,
    Action,
    CopyPlace,
    Intent,
    Observed,
    Pods,
    Suspends,
    Unread,
    Verdict,
    next_action,
    released,
)
from carico_agent.burst.requests import Request as Request
from carico_agent.burst.requests import ServerAnswer as ServerAnswer
from carico_agent.burst.requirements import Needed, cannot_leave, needed
from carico_agent.burst.results import final_status
from carico_agent.burst.seal import Seal

MAX_ACTIONS = 25
"""A move has 9; conflicts with other writers make it more. Then it is tried again later."""


@dataclass(frozen=True)
class Route:
    """Between which clusters, and what may take it. All of it is configured by the operator."""

    home_id: str
    to: str
    suspends: Suspends = field(default_factory=Suspends)
    namespaces: dict[str, str] = field(default_factory=dict)
    """Namespace at home → at the target, where they differ."""
    cluster: str = ""
    """UID of the target's kube-system namespace."""
    seal: Seal = field(kw_only=True)
    homes: tuple[str, ...] = ()
    """Namespaces at home whose Jobs may move. Empty: all."""
    host_paths: tuple[str, ...] = ()
    """Folders that every node of the target has."""
    steps: DataSteps | None = None
    """How Jobs reach the registry of models."""
    copy: tuple[str, ...] = ()
    """Which objects burst brings to the target: configmaps, secrets."""
    data: tuple[Data, ...] = ()
    """Of the one Job that is being moved: where what it reads lies."""

    def prepared(self, job: Object) -> Object:
        """The Job as it runs at the target; raises ValueError."""
        unknown = {one.name for one in models_of(job)[0]} - {one.name for one in self.data}
        if unknown:
            raise ValueError(f"where model {min(unknown)} lies is not known")
        return prepared(job, self.steps, self.data)

    def taken_along(self, job: Object) -> list[Needed]:
        """The objects that go with this Job; raises ValueError."""
        return [one for one in needed(self.prepared(job), "") if may_copy(one, self.copy)] if self.copy else []

    def namespace(self, home: str) -> str:
        return self.namespaces.get(home, home)

    def place(self, home: str) -> CopyPlace:
        return CopyPlace(self.cluster, self.namespace(home))

    def obstacle(self, job: HomeJob) -> str:
        """Why this Job may not go this way, or nothing: all that can be said without asking the target."""
        if self.homes and job.namespace not in self.homes:
            return f"Jobs of namespace {job.namespace} do not move (burst.namespaces)"
        there = self.namespace(job.namespace)
        if there.startswith("kube-"):
            return f"namespace {there} is for the target's own control plane"
        try:
            return cannot_leave(self.prepared(job.whole), self.host_paths)
        except ValueError as error:
            return str(error)


@dataclass(frozen=True)
class MoveOutcome:
    """Where it stands when there is nothing to do now. `job` is None when the home Job is gone."""

    job: HomeJob | None
    verdict: Verdict
    done: tuple[Action, ...] = ()
    """What was written in this run."""


def jobs_path(namespace: str, name: str = "") -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs" + (f"/{name}" if name else "")


def _is_used(home: HomeJob, copy: CopyJob | Unread) -> bool:
    state = home.ledger.state
    return state == State.AWAY or (state == State.HOLDING and released(Observed(home, copy)))


def reconcile(
    home: HomeJob,
    wish: Intent,
    route: Route,
    copy: CopyJob | Unread = UNREAD,
    refusal: str = "",
    logs_kept: bool = True,
) -> Generator[Request, ServerAnswer, MoveOutcome]:
    """Bring one Job as far as it can be brought now. `home` may be old: then the first write is refused.

    `copy`: as a watch knows it. It may be old as well, and is used only while the Job is away: what is done then is
    guarded by its version, or (its result) does not change any more; and where it shows that the Job was away once.
    `refusal`: why the target cannot take the Job; a copy that is there already goes on.
    `logs_kept`: false stops before the result is taken home, which lets the copy and its logs be deleted.
    """
    seen, uid = Observed(home, copy if _is_used(home, copy) else UNREAD, refusal=refusal), home.uid
    place = route.place(home.namespace)
    done: list[Action] = []
    verdict = Verdict(Action.NOTHING)
    for _ in range(MAX_ACTIONS):
        verdict = next_action(seen, wish, route.suspends, place)
        if verdict.action in (Action.NOTHING, Action.WAIT) or (verdict.action == Action.MIRROR and not logs_kept):
            break
        after = yield from _act(seen, verdict, route)
        if after is None or after.home.uid != uid:
            return MoveOutcome(None, verdict, tuple(done))
        if _wrote(verdict.action, seen, after):
            done.append(verdict.action)
        seen = replace(after, refusal=after.refusal or refusal)
    return MoveOutcome(seen.home, verdict, tuple(done))


def _wrote(action: Action, before: Observed, after: Observed) -> bool:
    """Whether an action was taken by the server that it was for. One that was refused is not done, and not counted."""
    match action:
        case Action.RELEASE:
            return isinstance(after.copy, CopyJob) and after.copy.state == CopyState.RELEASED
        case Action.SEAL:
            return isinstance(after.copy, CopyJob) and after.copy.state == CopyState.SEALED
        case Action.CREATE_COPY | Action.DELETE_COPY:
            return True
    return after.home.version != before.home.version


def _act(seen: Observed, verdict: Verdict, route: Route) -> Generator[Request, ServerAnswer, Observed | None]:
    match verdict.action:
        case Action.READ_COPY:
            return replace(seen, copy=(yield from _read_copy(seen.home, route)))
        case Action.LIST_HOME_PODS:
            return replace(seen, home_pods=(yield from _home_pods(seen.home)))
        case Action.LIST_COPY_PODS:
            return replace(seen, copy_pods=(yield from _copy_pods(seen.home, route)))
        case Action.CREATE_COPY:
            return (yield from _create(seen, route))
        case Action.RELEASE:
            return (yield from _release(seen, route))
        case Action.SEAL:
            return (yield from _write_copy(seen, CopyState.SEALED, route))
        case Action.DELETE_COPY:
            return (yield from _delete(seen, route))
        case Action.MIRROR:
            return (yield from _mirror(seen, route))
        case Action.COMMIT:
            return (yield from _commit(seen, verdict, route))
        case _:
            return (yield from _write_ledger(seen, verdict, route))


# ---- at home


def _read_home(home: HomeJob, route: Route) -> Generator[Request, ServerAnswer, HomeJob | None]:
    answer = yield Request(True, "GET", jobs_path(home.namespace, home.name))
    return None if answer.status == 404 else home_job(answer.body, route.seal)


def _home_pods(home: HomeJob) -> Generator[Request, ServerAnswer, Pods]:
    labels = ((home.whole["spec"].get("selector") or {}).get("matchLabels")) or {"controller-uid": home.uid}
    return (yield from _list_pods(True, home.namespace, labels))


def _list_pods(at_home: bool, namespace: str, labels: dict[str, str]) -> Generator[Request, ServerAnswer, Pods]:
    """Without a resourceVersion: the server asks etcd, so the answer is not older than the question."""
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    path = f"/api/v1/namespaces/{namespace}/pods"
    answer = yield Request(at_home, "GET", path, params={"labelSelector": selector})
    pods = answer.body.get("items") or []
    return Pods(len(pods), sum(1 for pod in pods if (pod.get("spec") or {}).get("nodeName")))


def _next_ledger(seen: Observed, verdict: Verdict, route: Route) -> tuple[MoveRecord, bool | None, bool]:
    """The ledger to write, whether the Job is held (None: as it is), whether it keeps our finalizer."""
    home, ledger = seen.home, seen.home.ledger
    match verdict.action:
        case Action.HOLD:
            by_suspend = route.suspends.home
            namespace = route.namespace(home.namespace)
            new = MoveRecord(
                State.HOLDING,
                route.to,
                ledger.epoch + 1,
                home.parallelism,
                by_suspend,
                cluster=route.cluster,
                namespace=namespace,
            )
            return new, True, True
        case Action.HOLD_AGAIN:
            parallelism = ledger.parallelism if ledger.suspend else home.parallelism
            return replace(ledger, parallelism=parallelism, note=verdict.why), True, True
        case Action.COMMIT:
            assert isinstance(seen.copy, CopyJob)
            return replace(ledger, state=State.AWAY, note=verdict.why, copy=seen.copy.uid), True, True
        case Action.CANCEL_RECALL:
            return replace(ledger, state=State.AWAY, note=verdict.why), True, True
        case Action.BEGIN_RECALL:
            return replace(ledger, state=State.RECALLING, note=verdict.why), True, True
        case Action.UNDO:
            kept = home.parallelism if home.parallelism else ledger.parallelism
            new = replace(ledger, state=State.RETURNED, epoch=ledger.epoch + 1, parallelism=kept, note=verdict.why)
            return new, False, True
        case Action.RETURN:
            return replace(ledger, state=State.RETURNED, epoch=ledger.epoch + 1), False, True
        case Action.ABANDON:
            return replace(ledger, state=State.HOME, epoch=ledger.epoch + 1, note=verdict.why), False, False
        case Action.CLEAR:
            state = State.DONE if home.finished and ledger.state != State.RETURNED else State.HOME
            return replace(ledger, state=state), False if home.finished else None, False
    raise AssertionError(verdict.action)


def _write_ledger(seen: Observed, verdict: Verdict, route: Route) -> Generator[Request, ServerAnswer, Observed | None]:
    """After a conflict with another client's write: read and decide again. A copy in hand stays: it is older, as it
    must be. Only a recall reads it again: that it has stopped must have been written after the recall began, or be
    proven so."""
    home = seen.home
    ledger, hold, guard = _next_ledger(seen, verdict, route)
    body = objects.ledger_patch(home, ledger, hold, guard, route.seal)
    answer = yield Request(True, "PATCH", jobs_path(home.namespace, home.name), body)
    if answer.status < 300:
        written = home_job(answer.body, route.seal)
        return Observed(written, UNREAD if verdict.action == Action.BEGIN_RECALL else seen.copy)
    fresh = yield from _read_home(home, route)
    return None if fresh is None else Observed(fresh)


def _commit(seen: Observed, verdict: Verdict, route: Route) -> Generator[Request, ServerAnswer, Observed | None]:
    """First what the Job names and the target lacks: the copy, which is still held, owns it."""
    home, copy = seen.home, seen.copy
    assert isinstance(copy, CopyJob)
    if route.copy and not released(seen):
        namespace = route.namespace(home.namespace)
        wanted = route.taken_along(home.whole)
        if why := (yield from take_along(wanted, home, route.home_id, copy, namespace)):
            return replace(seen, refusal=why)
    return (yield from _write_ledger(seen, verdict, route))


def _mirror(seen: Observed, route: Route) -> Generator[Request, ServerAnswer, Observed | None]:
    home, copy = seen.home, seen.copy
    assert isinstance(copy, CopyJob)
    path = jobs_path(home.namespace, home.name) + "/status"
    answer = yield Request(True, "PATCH", path, final_status(home, copy))
    if answer.status < 300:
        return Observed(home_job(answer.body, route.seal), copy)
    fresh = yield from _read_home(home, route)
    return None if fresh is None else Observed(fresh)


# ---- at the target


def _copy_path(home: HomeJob, route: Route) -> str:
    """As it is configured, never as the ledger says. Where these differ, `next_action` does nothing at the target."""
    return jobs_path(route.namespace(home.namespace), home.name)


def _read_copy(home: HomeJob, route: Route) -> Generator[Request, ServerAnswer, CopyJob | None]:
    answer = yield Request(False, "GET", _copy_path(home, route))
    return None if answer.status == 404 else copy_job(answer.body)


def _copy_pods(home: HomeJob, route: Route) -> Generator[Request, ServerAnswer, Pods]:
    return (yield from _list_pods(False, route.namespace(home.namespace), {objects.ORIGIN: home.uid}))


def _create(seen: Observed, route: Route) -> Generator[Request, ServerAnswer, Observed]:
    """Every check before every creation, whatever state the Job was found in."""
    if why := route.obstacle(seen.home):
        return replace(seen, refusal=why)
    namespace = route.namespace(seen.home.namespace)
    template = route.prepared(seen.home.whole)["spec"]["template"]
    body = objects.copy_body(seen.home, route.home_id, namespace, route.suspends.target, template)
    answer = yield Request(False, "POST", jobs_path(namespace), body)
    if answer.status < 300:
        return replace(seen, copy=copy_job(answer.body))
    if answer.status != 409:
        return replace(seen, refusal=str(answer.body.get("message") or answer.status))
    return replace(seen, copy=(yield from _read_copy(seen.home, route)))


def _release(seen: Observed, route: Route) -> Generator[Request, ServerAnswer, Observed | None]:
    """The copy was read before; now the home Job must be away, with the copy's epoch, and then the copy unchanged."""
    copy = seen.copy
    assert isinstance(copy, CopyJob)
    fresh = yield from _read_home(seen.home, route)
    if fresh is None:
        return None
    seen = Observed(fresh, copy)
    if fresh.ledger.state != State.AWAY or fresh.ledger.epoch != copy.epoch or fresh.deleting or fresh.finished:
        return seen
    return (yield from _write_copy(seen, CopyState.RELEASED, route))


def _write_copy(seen: Observed, state: CopyState, route: Route) -> Generator[Request, ServerAnswer, Observed]:
    copy = seen.copy
    assert isinstance(copy, CopyJob)
    body = objects.copy_patch(copy, state, seen.home.ledger.parallelism, route.suspends.target)
    answer = yield Request(False, "PATCH", _copy_path(seen.home, route), body)
    return Observed(seen.home, copy_job(answer.body) if answer.status < 300 else UNREAD)


def _delete(seen: Observed, route: Route) -> Generator[Request, ServerAnswer, Observed]:
    """Read again afterwards unless it was deleted at once: the finalizer goes only when the copy is not there."""
    copy = seen.copy
    assert isinstance(copy, CopyJob)
    answer = yield Request(False, "DELETE", _copy_path(seen.home, route), objects.delete_options(copy))
    gone = answer.status == 404 or (answer.status < 300 and answer.body.get("kind") == "Status")
    return Observed(seen.home, None if gone else UNREAD)


def orphan(copy: CopyJob, home: HomeJob | None) -> str:
    """Why a copy has no origin any more, or nothing. A copy of a later epoch than the ledger's is left alone: then
    the ledger was edited, and only a human knows."""
    if home is None or home.uid != copy.origin:
        return "its Job at home is gone"
    if copy.epoch < home.ledger.epoch:
        return "a copy of an earlier move"
    back = home.ledger.state in (State.HOME, State.DONE, State.RETURNED)
    return "its Job is at home" if back and copy.epoch == home.ledger.epoch else ""


def collect(copy: CopyJob, namespace: str, route: Route) -> Generator[Request, ServerAnswer, str]:
    """Delete a copy without an origin. `namespace`: of the Job at home. Returns why, or nothing if it has one."""
    if not copy.origin or copy.home != route.home_id:
        return ""  # no copy of this home cluster
    answer = yield Request(True, "GET", jobs_path(namespace, copy.name))
    why = orphan(copy, None if answer.status == 404 else home_job(answer.body, route.seal))
    if why and not copy.deleting:
        path = jobs_path(copy.namespace, copy.name)
        yield Request(False, "DELETE", path, objects.delete_options(copy))
    return why
