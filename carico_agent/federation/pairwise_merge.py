"""The aggregator of *CARICO*, for comparison: one global subspace, merged with each contribution as it comes.

Each incoming subspace is merged with weights (N−1)/N and 1/N (*CARICO*, 4.3). It depends on the order, remembers a
vanished node without end and lets a talkative node weigh more; `moments.py` has none of these faults and is the
default. Numbers of both side by side: `python -m lab.bench.federation --methods`.
"""

import numpy as np

from carico_agent.core.subspace import Subspace, Vector
from carico_agent.federation.contribution import Contribution
from carico_agent.federation.moments import Moments, Sums, decompose, max_known, spread


class PairwiseMerge:
    """Same interface as Moments. Costs are those of Moments; the dissertation shares none.

    >>> cluster = PairwiseMerge()
    >>> for name, usage in (("a", 0.2), ("b", 0.6), ("b", 0.6)):
    ...     cluster.put(name, Contribution(("cpu",), Subspace.of_batch([[usage]])))
    >>> round(cluster.sums().subspace().magnitude ** 2, 12)   # b sent twice and weighs more than 1/2
    0.28
    """

    def __init__(self) -> None:
        self._last = Moments()
        self._names: tuple[str, ...] = ()
        self._subspace = Subspace.empty(0)

    def __len__(self) -> int:
        return len(self._last)

    def __contains__(self, node: str) -> bool:
        return node in self._last

    def put(self, node: str, contribution: Contribution) -> None:
        self._last.put(node, contribution)
        if not contribution.subspace.rank:
            return
        names = max_known((known, np.ones(len(known))) for known in (self._names, contribution.resources))
        mine = self._factor(self._subspace, self._names, names)
        theirs = self._factor(contribution.subspace, contribution.resources, names)
        nodes = len(self._last)
        # [√((N−1)/N)·UΣ, √(1/N)·U′Σ′]; the very first one is taken whole
        weight = 1.0 / nodes if self._subspace.rank else 1.0
        self._subspace = decompose(np.hstack([np.sqrt(1 - weight) * mine, np.sqrt(weight) * theirs]))
        self._names = names

    @staticmethod
    def _factor(subspace: Subspace, have: tuple[str, ...], want: tuple[str, ...]) -> Vector:
        return spread((subspace.u * subspace.sigma).T, have, want).T

    def drop(self, node: str) -> None:
        self._last.drop(node)

    def sums(self) -> Sums:
        exact = self._last.sums()
        root = self._factor(self._subspace, self._names, exact.resources).T * np.sqrt(exact.nodes)
        return Sums(exact.resources, root, exact.nodes, exact.resource_nodes, exact.cost)
