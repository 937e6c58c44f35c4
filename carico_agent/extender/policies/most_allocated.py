"""most-allocated: Packs: the node that is fullest and most evenly used with the Pod first.

Source: "Analyse von Verfahren zur Optimierung des Container-Schedulings in Kubernetes", section 5.1 (KM).
"""

from typing import ClassVar

from carico_agent.extender import packing
from carico_agent.extender.nodes import Floats
from carico_agent.extender.policies._packing import Packing


class MostAllocated(Packing):
    """Packs: the node that is fullest and most evenly used with the Pod first."""

    name: ClassVar[str] = "most-allocated"

    def score(self, used: Floats, share: Floats) -> Floats:
        return packing.most_allocated(used, share)
