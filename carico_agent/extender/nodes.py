"""What a policy is shown: the Pod that waits, and the nodes, as columns of numbers.

A `NodeState` is one node; the `NodeTable` keeps the numbers of all of them as columns, and `NodeColumns` are some of
its rows. Formulas about nodes stand in `NodeColumns` only, so that a question about one node (a binding) and one about
thousands (filter) have the same answer: one node is a table of one row.

Why columns: asking 5,000 objects one by one took 0.5 to 1.2 ms of every answer, their columns are asked in 0.1 to
0.3 ms, and a node that changed is written into its row in 1 µs. One row costs some 60 µs, which a binding (two requests
to the API server) does not notice.

Why names still become strings: decoding 5,000 and finding their rows is about half of an answer's time. But splitting
the body at its quotes instead, with the checks that make it safe, took longer than json.loads.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from carico_agent.extender.workload_columns import WorkloadColumns, column_of
from carico_agent.lib.kube.workloads import Amounts, NodeWorkloads

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PendingPod:
    """What a policy may know of a Pod that waits for a node. Those of one `workload` come from one template."""

    uid: str
    workload: str = ""
    holds: int = 0
    """What it asks of the extended resource."""
    cpu: float = 0.0
    """Its requests [cores]."""
    memory: float = 0.0
    """The same [bytes]."""
    requested: bool = False
    """Every container requests CPU."""
    elsewhere: Amounts | None = None
    """What one of its workload takes on nodes that know it; None: none does."""
    name: str = ""
    """Namespace and name, as "namespace/name"."""
    surprised_for_s: float = inf
    """How long ago a node found that its workload takes far more than it did [s]."""
    spreads: bool = False
    """It prefers to be spread over zones or nodes, which kube-scheduler scores."""


@dataclass(slots=True)
class NodeState:
    """One node. The `Cluster` keeps one per node, changes it in place and puts it into the table."""

    name: str
    places: float = nan
    """As published: Pods counted + Pod-Capacity (its slots), as the API server's Pods count. NaN when the node has
    never published."""
    published_s: float = -inf
    """When that was true [s], on the clock of `now_s`."""
    ttl_s: float = 0.0
    """How long it is valid [s]."""
    assigned: int = 0
    """Pods that hold a place here: bound or assumed, not finished (placement/ledger.py)."""
    held: int = 0
    """What those Pods ask of the extended resource."""
    starting: int = 0
    """Those of them that do not run yet."""
    unprofiled: int = 0
    """Those of them whose workload has not run here long enough to show in `places`."""
    known: Collection[str] = ()
    """The workloads that have."""
    unprofiled_workloads: Mapping[str, int] = field(default_factory=dict)
    """Pods here of each workload that has not."""
    starting_share: float = nan
    """The part of a Pod's stay here that it spends starting, by the Pods that ended lately; NaN while none has."""
    resource: int | None = None
    """The extended resource as published; None when there is none."""
    prior_places: float = inf
    """Places for Pods of which nothing is known: one for each half CPU (2 × cores); inf if that is unknown too."""
    cpu: float = nan
    """Allocatable [cores]."""
    memory: float = nan
    """The same [bytes]."""
    cpu_requested: float = 0.0
    """What the Pods here request [cores]."""
    work_jobs: int = 0
    """Pods whose work left is in `work_s`."""
    work_s: float = 0.0
    """What they still need, as published [CPU seconds]."""
    lefts_s: tuple[float, ...] = ()
    """What each of those still needs [CPU seconds], those with most first; of many only the first."""
    run_s: float = nan
    """What one of them needs from its start to its end, on the average [CPU seconds]; NaN: none is known."""
    contention_s: float = 0.0
    """Of its jobs, as ProCon computes it."""
    expected_contention_s: float = 0.0
    """The same with one job more."""
    at_limit: int = 0
    """1: its jobs use all of its CPU, by ProCon's rule."""
    train_pods: int = 0
    """Pods of Kubeflow TrainJobs that say how long they take (train_jobs.py)."""
    train_s: float = 0.0
    """What those still need [CPU seconds]."""
    memory_requested: float = 0.0
    """The same [bytes]."""
    workloads: NodeWorkloads | None = None
    """Its room and what workloads take of it, as published; None: it does not measure Pods one by one."""
    rise: str = ""
    """Under which id its placement Lease offers what is published."""
    left_cpu: float = nan
    """What is left of its room after the Pods on their way [cores]; NaN: unknown, or no room is published."""
    left_memory: float = nan
    """The same [bytes]."""
    left_io: float = nan
    """The same [share]."""
    left_network: float = nan
    pod_capacity: float = nan
    """As published beside `places`: how many more Pods fit by the node's own count; for the policy capacity."""

    @property
    def left(self) -> Amounts:
        return self.left_cpu, self.left_memory, self.left_io, self.left_network

    @left.setter
    def left(self, amounts: Amounts) -> None:
        self.left_cpu, self.left_memory, self.left_io, self.left_network = amounts


class NodeColumns:
    """Some nodes, each number of all of them as one array. An array is made when it is first asked for: ask before the
    nodes change."""

    places: Floats
    published_s: Floats
    ttl_s: Floats
    pod_capacity: Floats
    assigned: Floats
    starting: Floats
    unprofiled: Floats
    starting_share: Floats
    prior_places: Floats
    cpu: Floats
    memory: Floats
    cpu_requested: Floats
    memory_requested: Floats
    left_cpu: Floats
    left_memory: Floats
    left_io: Floats
    left_network: Floats
    work_jobs: Floats
    work_s: Floats
    run_s: Floats
    contention_s: Floats
    expected_contention_s: Floats
    at_limit: Floats
    train_pods: Floats
    train_s: Floats

    def __init__(
        self, states: Sequence[NodeState], rows: NDArray[np.intp], numbers: Floats, costs: Callable[[str], Floats]
    ) -> None:
        """`numbers`: those of all `states`, a row for each of COLUMNS; `rows`: which of `states` these nodes are;
        `costs`: of a workload, on all `states`."""
        self._states, self._rows, self._numbers, self._costs = states, rows, numbers, costs

    if not TYPE_CHECKING:  # a misspelt column is still an error

        def __getattr__(self, name: str) -> Floats:
            if (at := _COLUMN_AT.get(name)) is None:
                raise AttributeError(name)
            column = self.__dict__[name] = self._numbers[at].take(self._rows)
            return column

    @classmethod
    def of(cls, states: Sequence[NodeState]) -> "NodeColumns":
        """Columns made for one question.

        >>> NodeColumns.of([NodeState("a", places=8, assigned=2)]).available()
        array([6.])
        """
        columns = np.array([_numbers(state) for state in states], dtype=float).reshape(len(states), len(COLUMNS)).T
        workloads = [state.workloads for state in states]
        return cls(states, np.arange(len(states)), columns, lambda workload: column_of(workloads, workload))

    def __len__(self) -> int:
        return len(self._rows)

    def names(self) -> list[str]:
        return [self._states[row].name for row in self._rows.tolist()]

    def left(self) -> tuple[Floats, Floats, Floats, Floats]:
        """What is left per resource, in the order of kube.workloads.RESOURCES."""
        return self.left_cpu, self.left_memory, self.left_io, self.left_network

    def cost(self, workload: str) -> Floats:
        """What one Pod of this workload takes, resources × nodes; NaN where the node does not know."""
        found: Floats = self._costs(workload).take(self._rows, axis=1)
        return found

    def lefts_s(self) -> list[tuple[float, ...]]:
        """What each job of each node still needs [CPU seconds]."""
        return [self._states[row].lefts_s for row in self._rows.tolist()]

    def caution(self) -> Floats:
        """How many places an unprofiled Pod counts for, at least one."""
        caution: Floats = np.fmax(1.0, self.places / self.prior_places)
        return caution

    def available(self) -> Floats:
        """Pods that still fit by the published number; NaN if there is none."""
        return self.places - self.assigned - (self.caution() - 1) * self.unprofiled

    def unknown_workload(self, workload: str, among: Mask) -> Mask:
        """Those of the nodes in `among` on which `workload` has not run long enough. Workloads are no numbers, so these
        nodes are asked one by one: keep `among` small."""
        found = np.zeros(len(self), dtype=bool)
        for at in np.flatnonzero(among):
            found[at] = workload not in self._states[self._rows[at]].known
        return found

    def unmeasured(self, workload: str, among: Mask) -> Floats:
        """Pods of `workload` on each of the nodes in `among` that have not run there long enough; 0 elsewhere."""
        found = np.zeros(len(self))
        for at in np.flatnonzero(among):
            found[at] = self._states[self._rows[at]].unprofiled_workloads.get(workload, 0)
        return found


COLUMNS = tuple(NodeColumns.__annotations__)
_COLUMN_AT = {name: at for at, name in enumerate(COLUMNS)}
_numbers = attrgetter(*COLUMNS)


class NodeTable:
    """All nodes, a row each. The code that changes a NodeState puts it again.

    >>> table, state = NodeTable(), NodeState("a", places=8)
    >>> table.put(NodeState("b", places=4)); table.put(state); table.drop("b")
    >>> state.assigned = 2
    >>> table.put(state); nodes = table.of(["a"]); nodes.places, nodes.assigned
    (array([8.]), array([2.]))
    """

    def __init__(self, rows: int = 64) -> None:
        """Room for so many `rows`, and twice as many whenever they are used up."""
        self._rows: dict[str, int] = {}
        self._states: list[NodeState] = []
        self._numbers = np.empty((len(COLUMNS), rows))
        self._workloads = WorkloadColumns(rows)

    def put(self, state: NodeState) -> None:
        row = self._rows.get(state.name)
        if row is None:
            row = self._rows[state.name] = len(self._states)
            self._states.append(state)
            if row == self._numbers.shape[1]:
                self._numbers = np.concatenate([self._numbers, np.empty_like(self._numbers)], axis=1)
                self._workloads.grow(self._numbers.shape[1])
        self._states[row] = state
        self._numbers[:, row] = _numbers(state)
        self._workloads.put(row, state.workloads)

    def drop(self, name: str) -> None:
        """The last row takes the place of the one that goes."""
        if (row := self._rows.pop(name, None)) is None:
            return
        last = self._states.pop()
        if row < len(self._states):
            self._rows[last.name] = row
            self.put(last)

    def of(self, names: Sequence[str]) -> NodeColumns:
        """These nodes, in this order; raises KeyError if one of them does not exist."""
        return self.at(np.fromiter(map(self._rows.__getitem__, names), np.intp, len(names)))

    def at(self, rows: NDArray[np.intp]) -> NodeColumns:
        """The nodes in these rows. While no node is dropped, rows are in the order in which nodes came."""
        return NodeColumns(self._states, rows, self._numbers, self._workloads.of)

    def all(self) -> NodeColumns:
        return self.at(np.arange(len(self._states)))

    def all_uncached(self) -> NodeColumns:
        """All nodes, for questions about workloads that no scheduler asks: what workloads take is read anew and not
        kept."""
        workloads = [state.workloads for state in self._states]
        return NodeColumns(
            self._states, np.arange(len(workloads)), self._numbers, lambda workload: column_of(workloads, workload)
        )
