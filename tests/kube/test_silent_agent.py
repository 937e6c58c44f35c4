"""An agent that is really killed: what its node offers is taken back by an extender, and comes back with the agent."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from carico_agent.extender.cluster import Cluster
from carico_agent.extender.expired import CALM_S, ExpiredNodes
from carico_agent.lib.kube.access import from_kubeconfig
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.net.times import boottime_s
from lab.support.control_plane import Plane
from lab.support.waiting import wait_for
from tests.conftest import AgentProcess
from tests.kube.test_node import TRACE, amounts

CONFIG = """[node]
state = "{folder}/state"
[budget]
cpu_ratio = 1.0
pressure_ratio = 1.0
[kubernetes]
heartbeat_s = 5.0
ttl_s = 10.0
"""
IDLE = ("--replay", TRACE, "--speed", "0.5")
"""The first seconds of this trace are an idle node's; its statuses come often enough not to expire."""


async def test_the_resource_of_a_killed_agent_is_lowered_with_an_event(
    cluster: Plane, start_agents: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    folder = tmp_path / "n1"
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG.format(folder=folder))
    cluster.admin.add_node("n1")
    cluster.admin.add_pod("holds", 1, nodeName="n1")

    def start() -> AgentProcess:
        agent = start_agents("n1", "--kubeconfig", str(cluster.kubeconfig("agent-token")), *IDLE)
        wait_for(lambda: int(amounts(cluster.admin.node("n1"))[1] or 0) > 1, "it offers more than is held")
        return agent

    agent = await asyncio.to_thread(start)
    access = from_kubeconfig(cluster.kubeconfig("extender-token"))
    async with KubeClient(access, TokenBucket(per_s=100.0, burst=100)) as client:
        known = Cluster(client, RESOURCE, "carico")
        expired = ExpiredNodes(client, known, RESOURCE, "carico", lambda: True)
        watching = asyncio.create_task(known.run())
        async with asyncio.timeout(60.0):
            while not known.watches.open():
                await asyncio.sleep(0.1)
            # A minute ahead: it waits for so long before it lowers anything. The Lease is judged by the real time.
            await expired.round(boottime_s() + CALM_S)
            assert expired.lowered == 0
            agent.stop(signal.SIGKILL)
            while not expired.lowered:
                await asyncio.sleep(0.5)
                await expired.round(boottime_s() + CALM_S)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert amounts(cluster.admin.node("n1")) == ("1", "1")
    events = cluster.admin.get("/api/v1/namespaces/default/events")["items"]
    notes = [one["message"] for one in events if one["reason"] == "CaricoAgentSilent"]
    assert len(notes) == 1 and notes[0].startswith("no heartbeat of carico's agent") and notes[0].endswith("to 1")
    await asyncio.to_thread(start)
