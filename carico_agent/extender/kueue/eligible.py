"""Which nodes a PodSet may use, room aside: its own rules, and those of the flavors that Kueue has assigned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from carico_agent.extender.kueue.workload import PodSet
from carico_agent.extender.node_marks import MarkedNode
from carico_agent.extender.nodes import Mask
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.filters.pod_rules import rules_of


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor: Kueue adds its labels to a PodSet's node selector, and its tolerations to the Pods'."""

    labels: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Object, ...] = ()


def read_flavor(flavor: Object) -> Flavor:
    spec = flavor.get("spec") or {}
    return Flavor(tuple((spec.get("nodeLabels") or {}).items()), tuple(spec.get("tolerations") or ()))


def eligible(
    pods: PodSet, namespace: str, flavors: Mapping[str, Flavor], marks: Mapping[str, MarkedNode], names: Sequence[str]
) -> Mask:
    """Which of the nodes with these names kube-scheduler would consider for the PodSet."""
    chosen = [flavors[name] for name in pods.flavors if name in flavors]
    rules = rules_of(pods.template, namespace)
    rules = replace(
        rules,
        selector=(*rules.selector, *(label for one in chosen for label in one.labels)),
        tolerations=(*rules.tolerations, *(one for flavor in chosen for one in flavor.tolerations)),
    )
    nodes = map(marks.get, names)
    return np.array(
        [node is not None and not rules.why_not(node.name, node.labels, node.taints, ()) for node in nodes], bool
    )
