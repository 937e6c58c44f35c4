"""/metrics and /healthz of the aggregator: Prometheus text over HTTP, on an address of its own."""

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from carico_agent.net.address import split
from carico_agent.supervise.cost import OwnCost

if TYPE_CHECKING:
    from carico_agent.federation.server import AggregatorServer


def text(aggregator: "AggregatorServer") -> str:
    """The numbers as Prometheus reads them."""
    status = aggregator.report(most_nodes=0)
    view = status.view
    lines: list[str] = []

    def family(name: str, kind: str, help_text: str, *samples: tuple[str, float]) -> None:
        lines.extend([f"# HELP carico_aggregator_{name} {help_text}", f"# TYPE carico_aggregator_{name} {kind}"])
        lines.extend(f"carico_aggregator_{name}{labels} {value:.12g}" for labels, value in samples)

    rank = len(view.subspace.sigma)
    family("nodes", "gauge", "Nodes in the view, over all aggregators.", ("", view.nodes))
    family("local_nodes", "gauge", "Nodes that spoke to this aggregator last.", ("", status.local_nodes))
    family("streams", "gauge", "Open streams.", ("", status.streams))
    family("exchanges_total", "counter", "Contributions received, rejected ones included.", ("", status.exchanges))
    family(
        "rejects_total",
        "counter",
        "Contributions rejected.",
        *((_labels(reason=reject.reason), reject.count) for reject in status.rejects),
    )
    family("view_sequence", "gauge", "Number of the view; rises with each change.", ("", view.sequence))
    family(
        "magnitude",
        "gauge",
        "Magnitude of the cluster's workload, sigma 1.",
        ("", view.subspace.sigma[0] if rank else 0.0),
    )
    family(
        "direction",
        "gauge",
        "Direction of the cluster's workload, u 1, per resource.",
        *(
            (_labels(resource=name), view.subspace.u[i * rank])
            for i, name in enumerate(view.subspace.resources)
            if rank
        ),
    )
    family(
        "pod_cost",
        "gauge",
        "What one Pod uses, per resource, in the units the nodes sent.",
        *(
            (_labels(resource=name), view.cost.value[i])
            for i, name in enumerate(view.subspace.resources)
            if view.cost.precision[i] > 0
        ),
    )
    family(
        "peer_age_seconds",
        "gauge",
        "Age of what another aggregator said last.",
        *((_labels(peer=peer.aggregator or peer.address), peer.age_s) for peer in status.peers),
    )
    family("merge_seconds", "gauge", "Time the last merge took.", ("", aggregator.merge_s))
    family("resident_bytes", "gauge", "Resident memory.", ("", OwnCost.resident_bytes()))
    family("cpu_seconds_total", "counter", "CPU time used.", ("", OwnCost.cpu_s()))
    return "\n".join(lines) + "\n"


def _labels(**labels: str) -> str:
    quoted = (f'{key}="{_escape(value)}"' for key, value in labels.items())
    return "{" + ",".join(quoted) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def serve_http(address: str, aggregator: "AggregatorServer") -> None:
    """Answer until cancelled."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=text(aggregator), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def healthz(request: web.Request) -> web.Response:
        return web.json_response({"ok": True, "nodes": aggregator.ledger.sums.nodes})

    app = web.Application(client_max_size=1024)
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site: web.BaseSite
        if address.startswith("unix:"):
            site = web.UnixSite(runner, address[5:])
        else:
            site = web.TCPSite(runner, *split(address))
        await site.start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
