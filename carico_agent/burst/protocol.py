"""Every transition of a move, in one function without I/O.

A Job is at home, held, away, recalled, returned or done; that is written on the home Job and nowhere else. Any
mover that reads it can continue where another one stopped: `next_action` compares the home Job with the copy and names
the next action. Every write is a compare-and-swap, so a move stays correct when two movers act, when one dies and when
one continues after a long pause.

    hold ─► drained ─► copy (held) ─► away ─► release ─► mirror ─► the copy is deleted ─► the finalizer
                                       the commit point: before it only home can run the Job, after it only the copy

Why nothing runs twice:
- home runs Pods only while it is not held, and *away* is written only on a home Job that was held, that its controller
  has stopped (it wrote active = 0 after it had counted Pods) and that had no Pod in a consistent LIST afterwards;
- a copy is created held, and released only by a write on the version that was read **before** the home Job was read
  as away with the same epoch. A recall makes the home Job *recalling* first and writes on the copy second, so a
  release that was under way meets another version;
- every hold and every return raises the epoch: an old copy is never the copy of today's move;
- *away* names the copy (cluster, namespace, UID): another one of its name is never released, and a target or a
  namespace that is configured anew is not taken for the one in which the Job may still run.
Why a ledger sends nothing where its author may not: burst acts only in the namespace that its own configuration gives
(`CopyPlace`), and only in the cluster that the ledger names.
Why nothing is lost: the finalizer keeps the home Job until the copy is gone, and the copy has no time to live.
What a home cluster restored from a backup does: a Job that the backup has *away* or held goes on where it is, also when
it shall stay, as long as its copy is seen at the target. One whose copy is gone meanwhile waits for a recall if it was
away, and runs again if it was held. One that the backup has before the hold is started by home's own controller: no
mover can be faster, so after a restore look for Jobs that run in both.
A target that does not answer is never answered by a start at home. Only a recall, or a human who says that it is
fenced (`forget`), brings a Job back.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from carico_agent.burst.objects import CopyJob, CopyState, HomeJob, State

RECALLED = "recalled by hand"
"""Note in the ledger of a Job that a user has recalled: burst does not move it again by itself."""


class Intent(StrEnum):
    """What the planner or a user wants of a Job. STAY undoes an uncommitted move; KEEP continues one that has begun."""

    KEEP = "keep"
    MOVE = "move"
    STAY = "stay"
    RECALL = "recall"
    FORGET = "forget"


class Action(Enum):
    """The next action. READ_* only read; WAIT waits for a controller or a kubelet."""

    NOTHING = auto()
    WAIT = auto()
    READ_COPY = auto()
    LIST_HOME_PODS = auto()
    LIST_COPY_PODS = auto()
    HOLD = auto()
    HOLD_AGAIN = auto()
    UNDO = auto()
    CREATE_COPY = auto()
    COMMIT = auto()
    RELEASE = auto()
    MIRROR = auto()
    BEGIN_RECALL = auto()
    CANCEL_RECALL = auto()
    SEAL = auto()
    RETURN = auto()
    ABANDON = auto()
    DELETE_COPY = auto()
    CLEAR = auto()


@dataclass(frozen=True)
class Pods:
    """A consistent LIST of a Job's Pods, Terminating ones included."""

    count: int
    bound: int
    """Of them, on a node."""


class Unread(Enum):
    """Not looked at yet, as opposed to None: not there."""

    UNREAD = auto()


UNREAD = Unread.UNREAD


@dataclass(frozen=True)
class Observed:
    """What was read, oldest first: the copy must have been read before the home Job is read for its release."""

    home: HomeJob
    copy: CopyJob | Unread | None = UNREAD
    home_pods: Pods | None = None
    copy_pods: Pods | None = None
    refusal: str = ""
    """Why the target does not take the copy."""


@dataclass(frozen=True)
class Suspends:
    """Which side holds Jobs by `suspend`; the other does by `parallelism: 0`."""

    home: bool = False
    target: bool = False


@dataclass(frozen=True)
class CopyPlace:
    """Where burst would act for a Job by its configuration of today: the cluster (its UID) and the namespace there."""

    cluster: str = ""
    namespace: str = ""

    def __bool__(self) -> bool:
        return bool(self.cluster and self.namespace)


@dataclass(frozen=True)
class Verdict:
    """An action and why, in words for events and `carico burst status`."""

    action: Action
    why: str = ""


def next_action(seen: Observed, wish: Intent, suspends: Suspends, place: CopyPlace) -> Verdict:
    """What to do next about one Job. `place`: where the configuration of today leads."""
    home = seen.home
    state = home.ledger.state
    if state in (State.HOME, State.DONE):
        return _at_home(seen, wish, suspends.home, place)
    if wish == Intent.FORGET and state in (State.AWAY, State.RECALLING):
        if home.deleting or home.finished:
            return Verdict(Action.CLEAR, "the target is fenced: nothing is left of its copy")
        return Verdict(Action.ABANDON, "the target is fenced: the Job starts at home again")
    if wish == Intent.FORGET and (state == State.RETURNED or home.deleting):
        return Verdict(Action.CLEAR, "the target is fenced: its copy is gone")
    if state in (State.HOLDING, State.AWAY, State.RECALLING) and not _there(home, place):
        return _elsewhere(home, place)
    if home.deleting or state == State.RETURNED or (home.finished and state != State.HOLDING):
        return _clean_up(seen)
    if state == State.HOLDING:
        return _holding(seen, wish)
    if state == State.AWAY:
        return _away(seen, wish)
    return _recalling(seen, suspends.target)


def _there(home: HomeJob, place: CopyPlace) -> bool:
    """Whether the configuration still leads to where the ledger says that the copy is."""
    return bool(place) and (home.ledger.cluster, home.ledger.namespace) == (place.cluster, place.namespace)


def _elsewhere(home: HomeJob, place: CopyPlace) -> Verdict:
    """The target of today is another place than the one that was written down. A held copy there stays held."""
    ledger = home.ledger
    if not place:
        moved = undone = f"which cluster {ledger.to} is, is not known"
    elif ledger.cluster == place.cluster:
        moved = f"its copy is in namespace {ledger.namespace} at {ledger.to}, the configuration leads elsewhere now"
        undone = f"it was to go to namespace {ledger.namespace} at {ledger.to}, the configuration leads elsewhere now"
    else:
        moved = f"its copy is in the cluster that was {ledger.to}, which is another one now"
        undone = f"{ledger.to} is another cluster now"
    return Verdict(Action.UNDO, undone) if ledger.state == State.HOLDING else Verdict(Action.NOTHING, moved)


def may_hold(home: HomeJob, pods: Pods | None, by_suspend: bool) -> str:
    """Why a Job cannot be held now, or nothing: only one that never started moves."""
    if home.deleting or home.finished:
        return "it is finished or being deleted"
    if home.succeeded or home.failed:
        return "some of its Pods have ended already"
    if home.parallelism == 0 or home.suspended:
        return "another controller or user holds it"
    if not home.counted(by_suspend):
        return "its controller has not counted its Pods yet"
    if pods is not None and pods.bound:
        return f"{pods.bound} of its Pods have a node already"
    return ""


def _at_home(seen: Observed, wish: Intent, by_suspend: bool, place: CopyPlace) -> Verdict:
    home = seen.home
    if home.guarded:
        return Verdict(Action.CLEAR)  # a finalizer without a move: a user edited the ledger
    if wish != Intent.MOVE or home.ledger.state == State.DONE:
        return Verdict(Action.NOTHING)
    if not place:
        return Verdict(Action.NOTHING, "which cluster the target is, is not known yet")
    if why := may_hold(home, seen.home_pods, by_suspend):
        return Verdict(Action.NOTHING, why)
    return Verdict(Action.LIST_HOME_PODS if seen.home_pods is None else Action.HOLD)


def _clean_up(seen: Observed) -> Verdict:
    """The copy first, then the finalizer."""
    if seen.copy is UNREAD:
        return Verdict(Action.READ_COPY)
    if _ours(seen):
        assert isinstance(seen.copy, CopyJob)
        if seen.copy.deleting:
            return Verdict(Action.WAIT, "the copy's Pods are being deleted")
        return Verdict(Action.DELETE_COPY)
    return Verdict(Action.CLEAR)


def _ours(seen: Observed) -> bool:
    return isinstance(seen.copy, CopyJob) and seen.copy.origin == seen.home.uid


def _holding(seen: Observed, wish: Intent) -> Verdict:
    home, ledger = seen.home, seen.home.ledger
    if home.finished or home.succeeded or home.failed:
        return Verdict(Action.UNDO, "a Pod ended at home while the Job was being held")
    if not home.held(ledger.suspend):
        return Verdict(Action.UNDO, "another client started it while it was being held")
    committed = released(seen)
    if wish in (Intent.STAY, Intent.RECALL, Intent.FORGET) and not committed:
        return Verdict(Action.UNDO, "it shall stay at home")
    if seen.refusal and not committed:
        return Verdict(Action.UNDO, f"{ledger.to} does not take it: {seen.refusal}")
    if not home.stopped(ledger.suspend):
        return Verdict(Action.WAIT, "its controller has not deleted its Pods yet")
    if seen.home_pods is None:
        return Verdict(Action.LIST_HOME_PODS)
    if seen.home_pods.count:
        return Verdict(Action.WAIT, f"{seen.home_pods.count} of its Pods are still there")
    if seen.copy is UNREAD or seen.copy is None:
        return Verdict(Action.CREATE_COPY)  # fails where there is one, and then it is read
    assert isinstance(seen.copy, CopyJob)
    if not _ours(seen):
        return Verdict(Action.UNDO, f"{ledger.to} has another Job of this name")
    if seen.copy.deleting:
        return Verdict(Action.WAIT, "an old copy is being deleted")
    if seen.copy.epoch != ledger.epoch:
        return Verdict(Action.DELETE_COPY, "a copy of an earlier move")
    return Verdict(Action.COMMIT)


def released(seen: Observed) -> bool:
    """The copy of this very move is released already, so the home Job was away once: its store went back in time."""
    copy = seen.copy
    return (
        isinstance(copy, CopyJob)
        and _ours(seen)
        and (copy.epoch, copy.state, copy.deleting) == (seen.home.ledger.epoch, CopyState.RELEASED, False)
    )


def _away(seen: Observed, wish: Intent) -> Verdict:
    home, ledger, copy = seen.home, seen.home.ledger, seen.copy
    if not home.held(ledger.suspend):
        return Verdict(Action.HOLD_AGAIN, "another client started it at home while it is away")
    if copy is UNREAD:
        return Verdict(Action.READ_COPY)
    if copy is None or not _ours(seen):
        if wish == Intent.RECALL:
            return Verdict(Action.BEGIN_RECALL, f"{RECALLED}: the copy was gone")
        return Verdict(
            Action.NOTHING, f"its copy at {ledger.to} was deleted by another client; recall it to start it here"
        )
    assert isinstance(copy, CopyJob)
    if copy.deleting:
        return Verdict(Action.WAIT, f"its copy at {ledger.to} is being deleted by another client")
    if copy.epoch != ledger.epoch or ledger.copy not in ("", copy.uid):
        return Verdict(Action.DELETE_COPY, "a copy of an earlier move")
    if copy.finished:
        return Verdict(Action.MIRROR)
    if wish == Intent.RECALL:
        if copy.succeeded:
            return Verdict(Action.NOTHING, f"{copy.succeeded} of its Pods have succeeded there already")
        return Verdict(Action.BEGIN_RECALL, RECALLED)
    return Verdict(Action.NOTHING if copy.state == CopyState.RELEASED else Action.RELEASE)


def _recalling(seen: Observed, by_suspend: bool) -> Verdict:
    copy = seen.copy
    if not seen.home.held(seen.home.ledger.suspend):
        return Verdict(Action.HOLD_AGAIN, "another client started it at home while it is away")
    if copy is UNREAD:
        return Verdict(Action.READ_COPY)
    if isinstance(copy, CopyJob) and _ours(seen):
        if copy.finished:
            return Verdict(Action.MIRROR)
        if copy.succeeded and not copy.deleting:
            return Verdict(Action.CANCEL_RECALL, f"{copy.succeeded} of its Pods have succeeded there already")
        if copy.deleting:
            return Verdict(Action.WAIT, "its copy is being deleted")
        if copy.state != CopyState.SEALED:
            if copy.state == CopyState.RELEASED and not copy.counted(by_suspend):
                return Verdict(Action.WAIT, "the target's controller has not counted its Pods yet")
            return Verdict(Action.SEAL)
        if not copy.stopped(by_suspend):
            return Verdict(Action.WAIT, "the target's controller has not deleted its Pods yet")
    if seen.copy_pods is None:
        return Verdict(Action.LIST_COPY_PODS)
    if seen.copy_pods.count:
        return Verdict(Action.WAIT, f"{seen.copy_pods.count} of its Pods are still at the target")
    return Verdict(Action.RETURN)
