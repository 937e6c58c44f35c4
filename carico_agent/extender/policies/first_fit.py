"""first-fit: Packs: the first node in use that has room, in the order of their names.

Source: "Analyse von Verfahren zur Optimierung des Container-Schedulings in Kubernetes", section 5.1 (FF). There the
order is that of creation. Here it is that of names, which is the same from Pod to Pod: kube-scheduler begins at
another node each time.
"""

from typing import ClassVar

import numpy as np

from carico_agent.extender import packing
from carico_agent.extender.nodes import Floats, NodeColumns
from carico_agent.extender.policies._packing import Packing


class FirstFit(Packing):
    """Packs: the first node in use that has room, in the order of their names."""

    name: ClassVar[str] = "first-fit"

    def score(self, used: Floats, share: Floats) -> Floats:
        return packing.first_fit(used, share)

    def preference(self, nodes: NodeColumns, used: Floats, share: Floats) -> Floats:
        found: Floats = np.empty(len(nodes))
        found[np.argsort(nodes.names())] = self.score(np.zeros((len(nodes), 1)), np.zeros(1))
        return found
