"""vector-dot: Packs: the node whose free room points in the direction of the Pod's requests first.

Source: "Analyse von Verfahren zur Optimierung des Container-Schedulings in Kubernetes", section 5.1 (VD).
"""

from typing import ClassVar

from carico_agent.extender import packing
from carico_agent.extender.nodes import Floats
from carico_agent.extender.policies._packing import Packing


class VectorDot(Packing):
    """Packs: the node whose free room points in the direction of the Pod's requests first."""

    name: ClassVar[str] = "vector-dot"

    def score(self, used: Floats, share: Floats) -> Floats:
        return packing.vector_dot(used, share)
