"""Which of many nodes with room are handed on to be scored.

kube-scheduler scores every node that the extender leaves, one plugin after the other, and asks the extender to score
them too: with 1,000 nodes that is most of its time. So only the best go on, as kube-scheduler itself looks at a part of
a large cluster only (percentageOfNodesToScore, and 100 nodes at least). A Pod that prefers some nodes by other things
than room gets them all.
"""

import random
from collections.abc import Sequence

import numpy as np

from carico_agent.lib.kube.client import Object


def best(names: Sequence[str], scores: Sequence[int], count: int) -> set[str]:
    """The `count` names with the highest scores. Among equal ones those that follow a drawn place in the order, which
    is kube-scheduler's and goes through the zones in turn.

    >>> sorted(best(["a", "b", "c", "d"], [3, 9, 1, 9], 2))
    ['b', 'd']
    """
    start = random.randrange(len(names))
    order = np.argsort(-np.roll(np.asarray(scores), -start), kind="stable")[:count]
    return {names[(start + int(at)) % len(names)] for at in order}


def prefers_spread(pod: Object) -> bool:
    """Whether the Pod says by itself that it prefers to be spread: topologySpreadConstraints with ScheduleAnyway.

    >>> [prefers_spread({"spec": {"topologySpreadConstraints": [{"whenUnsatisfiable": when}]}})
    ...     for when in ("ScheduleAnyway", "DoNotSchedule")]
    [True, False]
    """
    constraints = (pod.get("spec") or {}).get("topologySpreadConstraints") or ()
    return any(one.get("whenUnsatisfiable") == "ScheduleAnyway" for one in constraints)


def has_preferences(pod: Object) -> bool:
    """Whether the Pod prefers nodes or places by something that we do not score.

    >>> has_preferences({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}}})
    False
    >>> has_preferences({"spec": {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}})
    True
    """
    spec = pod.get("spec") or {}
    if spec.get("topologySpreadConstraints"):
        return True
    affinity = spec.get("affinity") or {}
    return any((rules or {}).get("preferredDuringSchedulingIgnoredDuringExecution") for rules in affinity.values())
