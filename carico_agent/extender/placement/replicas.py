"""This extender among the others of its cluster: perhaps the one that leads, which places all Pods."""

from secrets import token_hex
from socket import gethostname

from carico_agent.extender.placement.leader_questions import LeaderQuestions
from carico_agent.extender.placement.placed_pods import PlacedPods
from carico_agent.extender.published import SeenLease
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.leader import LeaderLease, LeaderRecord, leader_record
from carico_agent.lib.kube.placement_lease import LEADER_LEASE, QUESTIONS_LEASE, PlacementLeases

MAX_HOST = 40
"""Letters of the host's name in our identity, which is part of an annotation's name: 63 at most."""
LEADER_S = 8.0
"""A leader that does not renew its Lease for this long is replaced [s]."""


class Replicas:
    """Which Pods were `placed` by this one while it leads, and its `questions` to the leader while it does not. Both,
    and their `leader`, have a `run`."""

    def __init__(self, client: KubeClient, namespace: str, bound_within_s: float) -> None:
        identity = f"{gethostname().lower()[:MAX_HOST].strip('-.')}-{token_hex(4)}"
        self.leader = LeaderLease(client, namespace, LEADER_LEASE, identity, LEADER_S, self._times, self._fit_to_lead)
        self.placed = PlacedPods(PlacementLeases(client, namespace), self.leader, bound_within_s)
        self.questions = LeaderQuestions(client, namespace, identity, lambda: self.leader.leads)

    def _times(self) -> Object:
        return self.placed.times()

    def _fit_to_lead(self) -> bool:
        return self.placed.fit_to_lead()

    @property
    def may_place(self) -> bool:
        """Whether this one leads, and knows all that it must."""
        return self.placed.why_not() is None

    def lease_seen(self, gone: bool, found: SeenLease) -> None:
        """The watch shows a Lease of the namespace."""
        own = found.of_extenders
        if found.name == LEADER_LEASE:
            self.placed.leader_seen(LeaderRecord() if gone or own is None else leader_record(own))
        elif found.name == QUESTIONS_LEASE and own is not None:
            self.questions.seen(own)
        elif not gone:
            self.placed.lease_seen(found.name, found.record)
