"""GET /metrics/nodes: how full each node is, in the form that the descheduler's LowNodeUtilization reads.

The descheduler evicts nothing while one node has no value, so nodes whose number has expired are named in a metric of
their own; docs/kubernetes.md has the query that counts them as half full: neither a source nor a target of evictions.
Why a path of its own: these are two lines per node, which a Prometheus that only wants the extender's health need not
read.
"""

import numpy as np

from carico_agent.extender.nodes import NodeColumns
from carico_agent.lib.net.metrics import Family


def node_families(nodes: NodeColumns, now_s: float) -> list[Family]:
    """
    >>> from carico_agent.extender.nodes import NodeState
    >>> nodes = NodeColumns.of([NodeState("a", 8, 0, 150, assigned=2), NodeState("b", 4, 0, 150, 6), NodeState("c")])
    >>> full, unknown = node_families(nodes, now_s=10)
    >>> [(labels["node"], value) for _, labels, value in [*full.samples, *unknown.samples]]
    [('a', 0.25), ('b', 1.0), ('c', 1.0)]
    """
    full = Family(
        "carico_extender_node_full_ratio", "gauge", "Slots that Pods hold, of all slots of the node; 1: full."
    )
    unknown = Family("carico_extender_node_unknown", "gauge", "1 for nodes without a valid number.")
    valid = (now_s - nodes.published_s <= nodes.ttl_s) & ~np.isnan(nodes.places)
    ratios = np.clip(1.0 - nodes.available() / np.maximum(nodes.places, 1.0), 0.0, 1.0)
    for name, is_valid, ratio in zip(nodes.names(), valid.tolist(), ratios.tolist(), strict=True):
        if is_valid:
            full.add(round(ratio, 3), node=name)
        else:
            unknown.add(1.0, node=name)
    return [full, unknown]
