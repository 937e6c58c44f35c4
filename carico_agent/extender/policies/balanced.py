"""balanced: Packs: as most-allocated, with even use counting twice.

Source: "Analyse von Verfahren zur Optimierung des Container-Schedulings in Kubernetes", section 5.1 (KR).
"""

from typing import ClassVar

from carico_agent.extender import packing
from carico_agent.extender.nodes import Floats
from carico_agent.extender.policies._packing import Packing


class Balanced(Packing):
    """Packs: as most-allocated, with even use counting twice."""

    name: ClassVar[str] = "balanced"

    def score(self, used: Floats, share: Floats) -> Floats:
        return packing.balanced(used, share)
