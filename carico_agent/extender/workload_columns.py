"""What a workload takes on each node, as columns, for the workloads that were asked about last.

Why only those: 5,000 nodes may know 80,000 workloads, and a column of each would be 160 kB. Making one takes 2 ms for
5,000 nodes, keeping it up to date a microsecond for each node that publishes.
"""

from collections import OrderedDict
from collections.abc import Sequence
from math import nan

import numpy as np
from numpy.typing import NDArray

from carico_agent.lib.kube.workloads import RESOURCES, UNKNOWN, Amounts, NodeWorkloads

MAX_WORKLOADS = 64

Floats = NDArray[np.float64]


class WorkloadColumns:
    """Columns (resources × rows) of costs; NaN where a node does not know the workload."""

    def __init__(self, rows: int) -> None:
        self._columns: OrderedDict[str, Floats] = OrderedDict()
        self._seen: list[NodeWorkloads | None] = [None] * rows  # what each row was made of

    def put(self, row: int, workloads: NodeWorkloads | None) -> None:
        """The node in this row publishes that now; costs nothing if it did before."""
        if self._seen[row] is workloads:
            return
        self._seen[row] = workloads
        for workload, column in self._columns.items():
            column[:, row] = cost_of(workloads, workload)

    def grow(self, rows: int) -> None:
        more = rows - len(self._seen)
        self._seen += [None] * more
        for workload, column in self._columns.items():
            self._columns[workload] = np.concatenate([column, np.full((len(RESOURCES), more), nan)], axis=1)

    def of(self, workload: str) -> Floats:
        column = self._columns.get(workload)
        if column is None:
            column = self._columns[workload] = column_of(self._seen, workload)
            if len(self._columns) > MAX_WORKLOADS:
                self._columns.popitem(last=False)
        self._columns.move_to_end(workload)
        return column


def cost_of(workloads: NodeWorkloads | None, workload: str) -> Amounts:
    listed = None if workloads is None else workloads.workloads.get(workload)
    return UNKNOWN if listed is None else listed.cost


def column_of(given: Sequence[NodeWorkloads | None], workload: str) -> Floats:
    costs = [cost_of(workloads, workload) for workloads in given]
    return np.array(costs, dtype=float).reshape(len(costs), len(RESOURCES)).T.copy()
