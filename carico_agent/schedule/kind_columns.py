"""What a kind takes on each node, as columns, for the kinds that were asked about last.

Why only those: 5,000 nodes may know 80,000 kinds, and a column of each would be 160 kB. Making one takes 2 ms for 5,000
nodes, keeping it up to date a microsecond for each node that publishes.
"""

from collections import OrderedDict
from collections.abc import Sequence
from math import nan

import numpy as np
from numpy.typing import NDArray

from carico_agent.kube.kinds import RESOURCES, UNKNOWN, Amounts, NodeKinds

MOST_KINDS = 64

Floats = NDArray[np.float64]


class KindColumns:
    """Columns (resources × rows) of costs; NaN where a node does not know the kind."""

    def __init__(self, rows: int) -> None:
        self._columns: OrderedDict[str, Floats] = OrderedDict()
        self._seen: list[NodeKinds | None] = [None] * rows  # what each row was made of

    def put(self, row: int, kinds: NodeKinds | None) -> None:
        """The node in this row publishes that now; costs nothing if it did before."""
        if self._seen[row] is kinds:
            return
        self._seen[row] = kinds
        for kind, column in self._columns.items():
            column[:, row] = cost_of(kinds, kind)

    def grow(self, rows: int) -> None:
        more = rows - len(self._seen)
        self._seen += [None] * more
        for kind, column in self._columns.items():
            self._columns[kind] = np.concatenate([column, np.full((len(RESOURCES), more), nan)], axis=1)

    def of(self, kind: str) -> Floats:
        column = self._columns.get(kind)
        if column is None:
            column = self._columns[kind] = column_of(self._seen, kind)
            if len(self._columns) > MOST_KINDS:
                self._columns.popitem(last=False)
        self._columns.move_to_end(kind)
        return column


def cost_of(kinds: NodeKinds | None, kind: str) -> Amounts:
    listed = None if kinds is None else kinds.kinds.get(kind)
    return UNKNOWN if listed is None else listed.cost


def column_of(given: Sequence[NodeKinds | None], kind: str) -> Floats:
    costs = [cost_of(kinds, kind) for kinds in given]
    return np.array(costs, dtype=float).reshape(len(costs), len(RESOURCES)).T.copy()
