"""Everything that the extender knows of one node, in one record: what it publishes, its placement Lease, its Pods.

The other structures are indexes of these records: `NodeTable` (columns of numbers, for questions about many nodes),
`ClusterCosts` (nodes by workload), `Ledger` (Pods by UID) and the queue of nodes that are due for a refresh.

A record exists as soon as a Node object, a Lease or a Pod names the node: the watches come in any order.
"""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from carico_agent.extender.nodes import NodeState
from carico_agent.extender.placement.tally import NodeTally
from carico_agent.lib.kube.placement_lease import LeaseRecord


class Dated(NamedTuple):
    """When a number was true [s], and for how long it holds [s]."""

    since_s: float = -inf
    ttl_s: float = 0.0


NEVER = Dated()


@dataclass(slots=True)
class NodeRecord:
    """One node."""

    state: NodeState
    """What policies are shown."""
    exists: bool = False
    """There is a Node object of this name."""
    published: Dated = NEVER
    """By the Node object."""
    renewed: Dated = NEVER
    """By the placement Lease."""
    lease: LeaseRecord | None = None
    """The placement Lease as the watch shows it; None: there is none."""
    tally: NodeTally = field(default_factory=NodeTally)
    """The Pods that hold a place here, added up."""

    def date(self) -> None:
        """The number is as old as the younger of Node object and Lease."""
        self.state.published_s, self.state.ttl_s = max(self.published, self.renewed, key=sum)


class NodeRecords:
    """All records by name.

    >>> records = NodeRecords()
    >>> records.of("a").exists = True
    >>> records.drop_unused("a"), records.find("a") is None, records.find("b") is None
    (None, False, True)
    """

    def __init__(self) -> None:
        self._records: dict[str, NodeRecord] = {}

    def find(self, name: str) -> NodeRecord | None:
        return self._records.get(name)

    def of(self, name: str) -> NodeRecord:
        """The record of this name, made if there is none."""
        record = self._records.get(name)
        if record is None:
            record = self._records[name] = NodeRecord(NodeState(name))
        return record

    def drop_unused(self, name: str) -> None:
        """Forget a node without a Node object, a Lease and Pods, and what was learned there."""
        record = self._records.get(name)
        if record is not None and not record.exists and record.lease is None and not record.tally.pods:
            del self._records[name]

    def with_lease(self) -> list[str]:
        """Nodes that have a placement Lease."""
        return [name for name, record in self._records.items() if record.lease is not None]
