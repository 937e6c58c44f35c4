"""The extender that is asked: a real server with a cluster that comes from no API server."""

import asyncio
import gc
import json
import tempfile
from dataclasses import dataclass
from math import nan

from carico_agent.extender.daemon import ExtenderServer
from carico_agent.extender.placement.ledger import Ledger
from carico_agent.extender.published import read_node
from carico_agent.lib.kube.pods import facts
from carico_agent.lib.kube.workloads import NodeWorkloads, WorkloadOnNode, encode
from carico_agent.lib.net.http import HttpServer
from carico_agent.settings import Settings, override
from lab.bench.extender_nodes import name, node_object

WORKLOADS_SHOWN = 16
"""As many workloads as an annotation holds; the Pod that is asked about is of the last of them."""


def workloads_annotation(room_cores: float) -> str:
    """A node that measures its Pods: its room and what 16 workloads take."""
    workloads = {
        f"default/app-{i}": WorkloadOnNode((0.2 + 0.1 * i, 1e8, nan, nan), pods=0) for i in range(WORKLOADS_SHOWN - 1)
    }
    workloads["default/bench"] = WorkloadOnNode((1.0, 2e8, nan, nan), pods=3)
    return encode(NodeWorkloads((room_cores, 8e9, nan, nan), (1.0, 2e8, nan, nan), workloads))


@dataclass(frozen=True)
class Case:
    """What is asked of an extender."""

    full_ratio: float = 0.5
    unprofiled: bool = False
    policy: str = "pod-capacity"
    room: bool = False
    """Nodes publish their room and what workloads take of it."""


def serve(count: int, port: int, case: Case) -> None:
    """An extender with a cluster that comes from no API server."""

    async def life() -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(
                {
                    "current-context": "x",
                    "contexts": [{"name": "x", "context": {"cluster": "x"}}],
                    "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
                },
                file,
            )
            file.flush()
            settings = override(Settings(), "kubernetes", kubeconfig=file.name)
            server = ExtenderServer(override(settings, "extender", listen=f"127.0.0.1:{port}", policy=case.policy))
        cluster = server.cluster
        cluster.ledger = Ledger(profile_s=3600.0 if case.unprofiled else 0.0)
        full = round(case.full_ratio * count)
        notes = [workloads_annotation(room) if case.room else "" for room in (0.5, 5.0)]
        cluster.nodes_listed([read_node(node_object(name(n), 8, notes[n >= full])) for n in range(count)])
        pods = [
            facts(
                {
                    "metadata": {"uid": f"{n}-{i}", "namespace": "default", "labels": {"carico.dev/workload": "bench"}},
                    "spec": {"nodeName": name(n)},
                    "status": {"phase": "Running"},
                }
            )
            for n in range(count)
            for i in range(3 if case.room or n >= full else 8)
        ]
        cluster.pods_listed(pods)
        for watch in (cluster.watches.nodes, cluster.watches.pods, cluster.watches.leases):
            if watch is not None:
                watch.synced.set()
        api = HttpServer(server.routes())
        await api.listen("127.0.0.1", port)
        gc.collect()
        gc.freeze()
        await server.extender.expire_loop()

    asyncio.run(life())
