"""The estimators by name. The first is the default."""

from carico_agent.core.estimators.base import CARICO, MEASURED, METHODS, Estimator, Judgement, Situation, Span
from carico_agent.core.estimators.paper import HALT_S, PaperDelta, PaperDual, PaperJoint, Redenominated
from carico_agent.core.estimators.resource_space import ResourceSpace

ESTIMATORS: dict[str, type[Estimator]] = {
    workload.name: workload for workload in (ResourceSpace, Redenominated, PaperDual, PaperJoint, PaperDelta)
}

__all__ = ["CARICO", "ESTIMATORS", "HALT_S", "MEASURED", "METHODS", "Estimator", "Judgement", "Situation", "Span"]
