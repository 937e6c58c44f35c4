"""All nodes as columns: what numpy needs to look at thousands of them in one go.

Why twice, as views and as columns: for one node (binding, the simulator) a view is quicker and easier to read. Asking
5,000 views one by one took 0.5 to 1.2 ms of every answer; their columns are asked in 0.1 to 0.3 ms, and a view that
changed is written into its row in 1 µs.

Why names still become strings: decoding 5,000 and finding their rows is now about half of an answer's time. But
splitting the body at its quotes instead, with the checks that make it safe, took longer than json.loads.
"""

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from carico_agent.schedule.policy import COLUMNS, Nodes, NodeState

_numbers = attrgetter(*COLUMNS)


class Table:
    """A row per node. Whoever changes a view puts it again.

    >>> table, view = Table(), NodeState("a", slots=8)
    >>> table.put(NodeState("b", slots=4)); table.put(view); table.drop("b")
    >>> view.assigned = 2
    >>> table.put(view); nodes = table.of(["a"]); nodes[0].name, nodes.slots, nodes.assigned
    ('a', array([8.]), array([2.]))
    """

    def __init__(self, rows: int = 64) -> None:
        """Room for so many `rows`, and twice as many whenever they are used up."""
        self._rows: dict[str, int] = {}
        self._views: list[NodeState] = []
        self._numbers = np.empty((len(COLUMNS), rows))

    def put(self, view: NodeState) -> None:
        row = self._rows.get(view.name)
        if row is None:
            row = self._rows[view.name] = len(self._views)
            self._views.append(view)
            if row == self._numbers.shape[1]:
                self._numbers = np.concatenate([self._numbers, np.empty_like(self._numbers)], axis=1)
        self._views[row] = view
        self._numbers[:, row] = _numbers(view)

    def drop(self, name: str) -> None:
        """The last row takes the place of the one that goes."""
        if (row := self._rows.pop(name, None)) is None:
            return
        last = self._views.pop()
        if row < len(self._views):
            self._rows[last.name] = row
            self.put(last)

    def of(self, names: Sequence[str]) -> Nodes:
        """These nodes, in this order; raises KeyError if one of them does not exist."""
        rows = np.fromiter(map(self._rows.__getitem__, names), np.intp, len(names))
        return Nodes(self._views, rows, self._numbers.take(rows, axis=1))
