"""The states of a Pod as a scheduler sees it, and every transition between them. No other module decides about states.

           ASSUME          ACCEPT             SEEN_BOUND        SEEN_RUNNING          GONE
    (new) ───────► ASSUMED ───────► ACCEPTED ───────────► BOUND ─────────────► RUNNING ─────► ENDED
                      │ RELEASE                   a watch may skip states, and is always right
                      ▼
                    (new)

A Pod holds a place on its node from ASSUMED to RUNNING. ENDED is remembered for a while: an answer that is
older than the end must not bring the Pod back.
"""

from enum import Enum


class PodState(Enum):
    """Where a Pod is on its way."""

    ASSUMED = "assumed"
    """A scheduler is about to bind it; the place expires unless that is confirmed."""
    ACCEPTED = "accepted"
    """The API server has accepted our binding; the watch has not shown it yet."""
    BOUND = "bound"
    """The watch shows it on its node, not running yet."""
    RUNNING = "running"
    """The watch has shown it running."""
    ENDED = "ended"
    """It finished or was deleted."""

    __hash__ = object.__hash__  # Enum's own is Python code, which a list of 27,000 Pods notices

    @property
    def holds_place(self) -> bool:
        return self is not PodState.ENDED


class PodEvent(Enum):
    """What happens to a Pod."""

    ASSUME = "a place is taken for it"
    RELEASE = "it will not be bound there after all, or the watch did not confirm it in time"
    ACCEPT = "the API server accepted our binding"
    SEEN_BOUND = "the watch or a list shows it on a node"
    SEEN_RUNNING = "the watch or a list shows it running"
    GONE = "the watch shows that it finished or was deleted"
    UNLISTED = "a list of all bound, unfinished Pods does not name it"

    __hash__ = object.__hash__


SHOWN = (PodState.BOUND, PodState.RUNNING, PodState.ENDED)
"""The states in which the watch has shown what became of a Pod."""

_NEW = None
_STATE, _EVENT = PodState, PodEvent

TRANSITIONS: dict[tuple[PodState | None, PodEvent], PodState | None] = {
    (_NEW, _EVENT.ASSUME): _STATE.ASSUMED,
    (_STATE.ASSUMED, _EVENT.ACCEPT): _STATE.ACCEPTED,
    (_STATE.ASSUMED, _EVENT.RELEASE): _NEW,
    # A list may be older than the answer to our binding: the Pod is no longer sure, but keeps its place for a while.
    (_STATE.ACCEPTED, _EVENT.UNLISTED): _STATE.ASSUMED,
    (_STATE.BOUND, _EVENT.UNLISTED): _STATE.ENDED,
    (_STATE.RUNNING, _EVENT.UNLISTED): _STATE.ENDED,
    # The watch is right, whatever was assumed. Only a Pod that ran stays running: the kubelet may report it late.
    **{(state, _EVENT.SEEN_BOUND): _STATE.BOUND for state in (_NEW, *_STATE) if state is not _STATE.RUNNING},
    **{(state, _EVENT.SEEN_RUNNING): _STATE.RUNNING for state in (_NEW, *_STATE)},
    **{(state, _EVENT.GONE): _STATE.ENDED for state in (_NEW, *_STATE)},
}
"""The state after an event. What is not named here changes nothing: a Pod that is bound cannot be assumed elsewhere,
one that the API server accepted is not released, one that ended does not come back by an old answer."""


def after(state: PodState | None, event: PodEvent) -> PodState | None:
    """The state after `event`; None: we know nothing of the Pod.

    >>> after(None, PodEvent.ASSUME), after(PodState.ENDED, PodEvent.ASSUME)
    (<PodState.ASSUMED: 'assumed'>, <PodState.ENDED: 'ended'>)
    """
    return TRANSITIONS.get((state, event), state)
