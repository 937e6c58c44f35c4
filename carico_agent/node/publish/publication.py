"""What the node's placement Lease and its Node object contain, as far as the agent knows, and every transition.

The agent is the only writer of both, so what they contain follows from its writes and their answers. A write whose
answer is lost may have been made or not. `OwnLease` and `NodeWriter` send the requests and report here what came of
them; they keep no flags of their own about it.

The Lease:

              ASKS           ACKNOWLEDGED         ANNOUNCES          NODE_WRITTEN
    UNKNOWN ───────► ASKED ───────────────► HOLDS ─────────► RISING ─────────────► RISEN
                      ▲ │ FORMER_LEADER       ▲
                 ASKS │ ▼                     │ RISES_AGAIN, from ASKED and OUTDATED
                    OUTDATED ─────────────────┘

    Every state → ASKED, RISING by ASKS, ANNOUNCES; every state → UNKNOWN by SENDS (until the answer comes) and REPLACED

The Node object:

               SENDS                ANSWERED
    UNWRITTEN ───────► UNANSWERED ───────────► WRITTEN ─ SENDS ─► UNANSWERED …      every state → UNWRITTEN by REPLACED

Order of one publication: the Lease is lowered and acknowledged (ASKED → HOLDS), or nothing falls; a higher offer is
announced (RISING); the Node object is written (WRITTEN); then the announced offer holds (RISEN). Reasons:
lib/kube/placement_lease.py.
"""

from dataclasses import dataclass, replace
from enum import Enum

from carico_agent.lib.kube.placement_lease import NO_OFFER, NO_RISE, Offer, Rise
from carico_agent.node.publish.node_reasons import LastWrite

NOTHING = Offer(0, 0)


class LeaseState(Enum):
    """What the Lease contains."""

    UNKNOWN = "never written, refused, of another node, or the answer to the last write has not come"
    HOLDS = "an offer without a condition"
    ASKED = "a lower offer that the leading extender has not acknowledged"
    OUTDATED = "a lower offer that was acknowledged by an extender that leads no longer"
    RISING = "an offer, and a higher one for extenders that see the Node object with its id; the Node may have that id"
    RISEN = "a higher offer whose id the Node object carries"


class LeaseEvent(Enum):
    """What happens to the Lease."""

    SENDS = "a write is sent"
    REPLACED = "the node is another one: its Lease went with the old one"
    ASKS = "a lower offer was written with a token"
    ACKNOWLEDGED = "the leading extender has seen the token, or no extender places Pods"
    FORMER_LEADER = "an extender that leads no longer has seen the token"
    RISES_AGAIN = "the number is no longer lower than the published one"
    ANNOUNCES = "a higher offer was written with an id"
    NODE_WRITTEN = "the Node object carries the id"
    REPEATS = "the same offer was written again, as a heartbeat"


_STATE, _EVENT = LeaseState, LeaseEvent

LEASE_TRANSITIONS: dict[tuple[LeaseState, LeaseEvent], LeaseState] = {
    **{(state, _EVENT.SENDS): _STATE.UNKNOWN for state in _STATE},
    **{(state, _EVENT.REPLACED): _STATE.UNKNOWN for state in _STATE},
    **{(state, _EVENT.ASKS): _STATE.ASKED for state in _STATE},
    **{(state, _EVENT.ANNOUNCES): _STATE.RISING for state in _STATE},
    (_STATE.ASKED, _EVENT.ACKNOWLEDGED): _STATE.HOLDS,
    (_STATE.ASKED, _EVENT.FORMER_LEADER): _STATE.OUTDATED,
    (_STATE.ASKED, _EVENT.RISES_AGAIN): _STATE.HOLDS,
    (_STATE.OUTDATED, _EVENT.RISES_AGAIN): _STATE.HOLDS,
    (_STATE.RISING, _EVENT.NODE_WRITTEN): _STATE.RISEN,
    # A heartbeat does not repeat an id of which it is not known whether the Node object carries it.
    (_STATE.RISING, _EVENT.REPEATS): _STATE.HOLDS,
}
"""The state after an event. What is not named here changes nothing."""


@dataclass(frozen=True, slots=True)
class LeaseContent:
    """The Lease as the agent wrote it last; while it is UNKNOWN, it counts as one that offers nothing.

    >>> asked = LeaseContent().ask(Offer(2, 2), "t")
    >>> asked.state.name, asked.offered, asked.after(LeaseEvent.ACKNOWLEDGED).announces(Offer(8, 8), "r").rise.offer
    ('ASKED', Offer(places=0, resource=0), Offer(places=8, resource=8))
    """

    state: LeaseState = LeaseState.UNKNOWN
    offered: Offer = NOTHING
    """What it offers without a condition."""
    rise: Rise = NO_RISE
    """What it offers to extenders that see the Node object with that id."""
    token: str = ""
    """What the leading extender has to acknowledge."""

    def after(self, event: LeaseEvent) -> "LeaseContent":
        """The content after an event that brings no offer of its own."""
        state = LEASE_TRANSITIONS.get((self.state, event), self.state)
        if state is LeaseState.UNKNOWN:
            return LeaseContent()
        if state is LeaseState.RISEN:
            return replace(self, state=state, offered=self.rise.offer)
        if state is LeaseState.HOLDS:
            return LeaseContent(state, self.offered)
        return replace(self, state=state)

    def ask(self, offer: Offer, token: str) -> "LeaseContent":
        """The lower one of `offer` and what is offered, for the leading extender to acknowledge."""
        state = LEASE_TRANSITIONS[self.state, LeaseEvent.ASKS]
        return LeaseContent(state, self.offered.least(offer), token=token)

    def announces(self, offer: Offer, rise_id: str) -> "LeaseContent":
        """The same as now, and `offer` once the Node object carries `rise_id`."""
        state = LEASE_TRANSITIONS[self.state, LeaseEvent.ANNOUNCES]
        return LeaseContent(state, self.offered, Rise(rise_id, offer))

    @property
    def known(self) -> bool:
        return self.state is not LeaseState.UNKNOWN

    @property
    def waits(self) -> bool:
        """A lower offer is not acknowledged by the extender that leads."""
        return self.state in (LeaseState.ASKED, LeaseState.OUTDATED)

    def must_ask(self, offer: Offer) -> bool:
        """Whether a lower `offer` has to be written before it is published: extenders may place Pods beyond it."""
        uncertain = self.state in (LeaseState.UNKNOWN, LeaseState.RISING, LeaseState.OUTDATED)
        return uncertain or self.offered.least(offer) != self.offered

    def must_announce(self, offer: Offer) -> bool:
        """Whether an agreed `offer` has to be written before it is published: extenders would not place Pods up to
        it."""
        return offer != self.offered and (not self.known or offer != self.rise.offer)


class NodeObjectState(Enum):
    """What the Node object contains."""

    UNWRITTEN = "nothing that this agent wrote since it started or since the node was created"
    UNANSWERED = "perhaps the last write, perhaps the one before"
    WRITTEN = "the last write"


@dataclass(frozen=True, slots=True)
class NodeContent:
    """What the API server took from us last, and what it may have taken since.

    >>> NodeContent().state.name, NodeContent().sends(Offer(8, 8)).state.name
    ('UNWRITTEN', 'UNANSWERED')
    """

    last: LastWrite | None = None
    perhaps: Offer = NO_OFFER
    """The highest offer of the writes since then that got no answer."""

    @property
    def state(self) -> NodeObjectState:
        if self.perhaps != NO_OFFER:
            return NodeObjectState.UNANSWERED
        return NodeObjectState.UNWRITTEN if self.last is None else NodeObjectState.WRITTEN

    def sends(self, offer: Offer) -> "NodeContent":
        """A write of `offer` is sent; without an answer it may be published."""
        return replace(self, perhaps=self.perhaps.max(offer))

    def answered(self, write: LastWrite) -> "NodeContent":
        """The API server took `write`."""
        return NodeContent(write)

    @property
    def published(self) -> Offer | None:
        """The most that extenders may read on the Node object; None: not known."""
        return None if self.last is None else self.last.offer.max(self.perhaps)
