"""The numbers: usage and a time go in, an estimate comes out. numpy only, no clock, file, log or socket."""

from carico_agent.core.config import ModelConfig
from carico_agent.core.model import CapacityModel, Estimate
from carico_agent.core.subspace import Subspace

__all__ = ["CapacityModel", "Estimate", "ModelConfig", "Subspace"]
