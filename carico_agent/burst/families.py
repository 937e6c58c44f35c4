"""/metrics of `carico burst`."""

from carico_agent.burst.service import BurstService
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.leader import LeaderLease
from carico_agent.lib.net import metrics
from carico_agent.lib.supervise.cost import OwnCost


def families(
    service: BurstService | None, lease: LeaderLease, home: KubeClient, cost_of: OwnCost, dropped: int
) -> list[metrics.Family]:
    """Everything but what a supervisor knows; without `service` only the process itself."""
    Family = metrics.Family
    cost = [
        *metrics.process(cost_of.cpu_s(), cost_of.resident_bytes(), "the service"),
        Family("carico_burst_leads", "gauge", "1 while this process leads.").add(float(lease.leads)),
    ]
    if service is None:
        return cost
    mover = service.mover
    states = Family("carico_burst_jobs", "gauge", "Jobs that may move, by state.")
    counts: dict[str, int] = {}
    for job in mover.jobs.values():
        counts[job.ledger.state] = counts.get(job.ledger.state, 0) + 1
    for state, count in sorted(counts.items()):
        states.add(count, state=state)
    answers = Family("carico_burst_target_answers", "gauge", "1 while the target's API server answers.")
    nodes = Family("carico_burst_target_nodes", "gauge", "Nodes of the target.")
    sent = Family("carico_burst_requests_total", "counter", "Requests sent to an API server.")
    sent.add(home.requests, cluster="home")
    for name, site in service.sites.items():
        answers.add(float(site.target.silent_since_s is None), target=name)
        nodes.add(len(site.view.nodes), target=name)
        sent.add(site.target.client.requests, cluster=name)
    return [
        *cost,
        states,
        answers,
        nodes,
        sent,
        Family("carico_burst_moved_total", "counter", "Jobs released at a target.").add(mover.moved),
        Family("carico_burst_finished_total", "counter", "Jobs that ended at a target.").add(mover.finished),
        Family("carico_burst_events_dropped_total", "counter", "Events not posted.").add(dropped),
    ]
