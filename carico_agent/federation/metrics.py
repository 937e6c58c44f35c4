"""The aggregator's numbers for Prometheus."""

from carico_agent.federation.aggregator import Aggregator
from carico_agent.lib.net.metrics import Family
from carico_agent.lib.supervise.cost import OwnCost


def families(aggregator: Aggregator) -> list[Family]:
    """All metrics of an aggregator."""
    status = aggregator.report(max_nodes=0)
    view, table = status.view, aggregator.table
    rank = len(view.subspace.sigma)
    rejects = _counter("rejects_total", "Contributions rejected.")
    for reject in status.rejects:
        rejects.add(reject.count, reason=reject.reason)
    direction = _gauge("direction", "Direction of the cluster's workload, u 1, per resource.")
    cost = _gauge("pod_cost", "What one Pod uses, per resource, in the units the nodes sent.")
    for i, name in enumerate(view.subspace.resources):
        direction.add(view.subspace.u[i * rank] if rank else None, resource=name)
        cost.add(view.cost.value[i] if view.cost.precision[i] > 0 else None, resource=name)
    peers = _gauge("peer_age_seconds", "Age of the last sums of another aggregator.")
    for peer in status.peers:
        peers.add(peer.age_s, peer=peer.aggregator or peer.address)
    return [
        _gauge("nodes", "Nodes in the view, over all aggregators.").add(view.nodes),
        _gauge("local_nodes", "Nodes whose last contribution came to this aggregator.").add(status.local_nodes),
        _gauge("streams", "Open streams.").add(status.streams),
        _gauge("workloads", "Workloads known.").add(len(table.workloads.rows)),
        _counter("exchanges_total", "Contributions received, rejected ones included.").add(status.exchanges),
        _counter("pushes_total", "Views sent because they changed.").add(aggregator.pushes),
        rejects,
        _counter("refused_connections_total", "Ended: their address had too many that made no call.").add(
            aggregator.refused_connections
        ),
        _gauge("view_sequence", "Number of the view; rises with each change.").add(view.sequence),
        _gauge("magnitude", "Magnitude of the cluster's workload, sigma 1.").add(
            view.subspace.sigma[0] if rank else 0.0
        ),
        direction,
        cost,
        peers,
        _gauge("merge_seconds", "Time the last merge took.").add(aggregator.merge_s),
        _gauge("resident_bytes", "Resident memory.").add(OwnCost.resident_bytes()),
        _counter("cpu_seconds_total", "CPU time used.").add(OwnCost.cpu_s()),
    ]


def _gauge(name: str, help: str) -> Family:
    return Family(f"carico_aggregator_{name}", "gauge", help)


def _counter(name: str, help: str) -> Family:
    return Family(f"carico_aggregator_{name}", "counter", help)
