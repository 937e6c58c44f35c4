"""The numbers: usage and a time go in, an estimate comes out. numpy only, no clock, file, log or socket."""

from carico_agent.core.config import ModelConfig
from carico_agent.core.estimate import Estimate, WorkloadEstimate
from carico_agent.core.model import CapacityModel
from carico_agent.core.outlook import Outlook
from carico_agent.core.pods import PodSample
from carico_agent.core.subspace import Subspace
from carico_agent.core.workloads import WorkloadCost

__all__ = [
    "CapacityModel",
    "Estimate",
    "ModelConfig",
    "Outlook",
    "PodSample",
    "Subspace",
    "WorkloadCost",
    "WorkloadEstimate",
]
