"""Every event in every state, as a table that a reader can check."""

import pytest

from carico_agent.extender.placement.lifecycle import PodEvent, PodState, after

NEW, ASSUMED, ACCEPTED, BOUND, RUNNING, ENDED = (None, *PodState)
STATES = (NEW, ASSUMED, ACCEPTED, BOUND, RUNNING, ENDED)
AFTER = {  # in the order of STATES
    PodEvent.ASSUME: (ASSUMED, ASSUMED, ACCEPTED, BOUND, RUNNING, ENDED),
    PodEvent.RELEASE: (NEW, NEW, ACCEPTED, BOUND, RUNNING, ENDED),
    PodEvent.ACCEPT: (NEW, ACCEPTED, ACCEPTED, BOUND, RUNNING, ENDED),
    PodEvent.SEEN_BOUND: (BOUND, BOUND, BOUND, BOUND, RUNNING, BOUND),
    PodEvent.SEEN_RUNNING: (RUNNING,) * 6,
    PodEvent.GONE: (ENDED,) * 6,
    PodEvent.UNLISTED: (NEW, ASSUMED, ASSUMED, ENDED, ENDED, ENDED),
}


@pytest.mark.parametrize("event", PodEvent)
def test_after(event: PodEvent) -> None:
    assert tuple(after(state, event) for state in STATES) == AFTER[event]


def test_who_holds_a_place() -> None:
    assert [state for state in PodState if not state.holds_place] == [ENDED]
