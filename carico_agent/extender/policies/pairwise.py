"""pairwise: Packs: the node that is least used where the Pod asks for most first.

Source: "Analyse von Verfahren zur Optimierung des Container-Schedulings in Kubernetes", section 5.1 (PP).
"""

from typing import ClassVar

from carico_agent.extender import packing
from carico_agent.extender.nodes import Floats
from carico_agent.extender.policies._packing import Packing


class Pairwise(Packing):
    """Packs: the node that is least used where the Pod asks for most first."""

    name: ClassVar[str] = "pairwise"

    def score(self, used: Floats, share: Floats) -> Floats:
        return packing.pairwise(used, share)
