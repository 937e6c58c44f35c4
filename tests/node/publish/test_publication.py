"""Every transition of what the Lease and the Node object contain."""

import pytest

from carico_agent.lib.kube.placement_lease import NO_OFFER, NO_RISE, Offer, Rise
from carico_agent.node.publish.node_reasons import LastWrite
from carico_agent.node.publish.publication import LeaseContent, LeaseEvent, LeaseState, NodeContent, NodeObjectState

TWO, FIVE, EIGHT = Offer(2, 2), Offer(5, 5), Offer(8, 8)
RISE = Rise("r", EIGHT)
CONTENTS = {
    LeaseState.UNKNOWN: LeaseContent(),
    LeaseState.HOLDS: LeaseContent(LeaseState.HOLDS, FIVE),
    LeaseState.ASKED: LeaseContent(LeaseState.ASKED, FIVE, token="t"),
    LeaseState.OUTDATED: LeaseContent(LeaseState.OUTDATED, FIVE, token="t"),
    LeaseState.RISING: LeaseContent(LeaseState.RISING, FIVE, RISE),
    LeaseState.RISEN: LeaseContent(LeaseState.RISEN, EIGHT, RISE),
}


@pytest.mark.parametrize("state", LeaseState)
def test_a_write_without_an_answer_and_another_node_leave_nothing_known(state: LeaseState) -> None:
    for event in (LeaseEvent.SENDS, LeaseEvent.REPLACED):
        assert CONTENTS[state].after(event) == LeaseContent()


@pytest.mark.parametrize("state", LeaseState)
def test_a_question_lowers_the_offer_and_takes_back_a_rise(state: LeaseState) -> None:
    content = CONTENTS[state]
    asked = content.ask(TWO, "t")
    assert (asked.state, asked.offered) == (LeaseState.ASKED, content.offered.least(TWO))
    assert (asked.rise, asked.token, asked.waits) == (NO_RISE, "t", True)


@pytest.mark.parametrize("state", LeaseState)
def test_a_higher_offer_holds_only_after_the_node_was_written(state: LeaseState) -> None:
    content = CONTENTS[state]
    rising = content.announces(EIGHT, "new")
    assert (rising.state, rising.offered, rising.rise) == (LeaseState.RISING, content.offered, Rise("new", EIGHT))
    assert rising.after(LeaseEvent.NODE_WRITTEN).offered == EIGHT
    assert rising.after(LeaseEvent.REPEATS) == LeaseContent(LeaseState.HOLDS, content.offered)


@pytest.mark.parametrize(
    ("before", "event", "state"),
    [
        (LeaseState.ASKED, LeaseEvent.ACKNOWLEDGED, LeaseState.HOLDS),
        (LeaseState.ASKED, LeaseEvent.FORMER_LEADER, LeaseState.OUTDATED),
        (LeaseState.ASKED, LeaseEvent.RISES_AGAIN, LeaseState.HOLDS),
        (LeaseState.ASKED, LeaseEvent.REPEATS, LeaseState.ASKED),
        (LeaseState.OUTDATED, LeaseEvent.ACKNOWLEDGED, LeaseState.OUTDATED),
        (LeaseState.OUTDATED, LeaseEvent.RISES_AGAIN, LeaseState.HOLDS),
        (LeaseState.RISEN, LeaseEvent.REPEATS, LeaseState.RISEN),
        (LeaseState.RISEN, LeaseEvent.RISES_AGAIN, LeaseState.RISEN),
        (LeaseState.RISING, LeaseEvent.RISES_AGAIN, LeaseState.RISING),
        (LeaseState.UNKNOWN, LeaseEvent.NODE_WRITTEN, LeaseState.UNKNOWN),
        (LeaseState.HOLDS, LeaseEvent.NODE_WRITTEN, LeaseState.HOLDS),
    ],
)
def test_answers_of_extenders_and_heartbeats(before: LeaseState, event: LeaseEvent, state: LeaseState) -> None:
    after = CONTENTS[before].after(event)
    assert after.state is state
    assert after == CONTENTS[before] or after == LeaseContent(LeaseState.HOLDS, FIVE) or state is LeaseState.OUTDATED


def test_which_falls_are_asked_for() -> None:
    """A lower number always; the same number where extenders may take more than it for offered."""
    assert all(content.must_ask(Offer(1, 1)) for content in CONTENTS.values() if content.known)
    again = {state for state, content in CONTENTS.items() if content.must_ask(content.offered)}
    assert again == {LeaseState.UNKNOWN, LeaseState.OUTDATED, LeaseState.RISING}


def test_which_offers_are_announced() -> None:
    higher = {state for state, content in CONTENTS.items() if content.must_announce(EIGHT)}
    assert higher == {LeaseState.UNKNOWN, LeaseState.HOLDS, LeaseState.ASKED, LeaseState.OUTDATED}
    assert not any(content.must_announce(content.offered) for content in CONTENTS.values())


def test_a_write_of_the_node_that_got_no_answer_may_be_published() -> None:
    written = NodeContent().sends(FIVE).answered(LastWrite(FIVE, FIVE, "", 0))
    unanswered = written.sends(TWO).sends(EIGHT).sends(TWO)
    states = [content.state for content in (NodeContent(), written, unanswered)]
    assert states == [NodeObjectState.UNWRITTEN, NodeObjectState.WRITTEN, NodeObjectState.UNANSWERED]
    assert [content.published for content in (NodeContent(), written, unanswered)] == [None, FIVE, EIGHT]
    assert unanswered.answered(LastWrite(TWO, TWO, "", 0)).perhaps == NO_OFFER
