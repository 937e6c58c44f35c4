"""The numbers: usage and a time go in, an estimate comes out. numpy only, no clock, file, log or socket."""

from carico_agent.core.config import ModelConfig
from carico_agent.core.estimate import Estimate, KindEstimate
from carico_agent.core.kinds import KindCost
from carico_agent.core.model import CapacityModel
from carico_agent.core.pods import PodSample
from carico_agent.core.subspace import Subspace

__all__ = ["CapacityModel", "Estimate", "KindCost", "KindEstimate", "ModelConfig", "PodSample", "Subspace"]
