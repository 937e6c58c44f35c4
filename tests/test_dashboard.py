"""The Grafana dashboard: every query is answered by a real Prometheus that scrapes what carico's own code exports."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carico_agent.burst.families import families as burst_families
from carico_agent.extender.daemon import ExtenderServer
from carico_agent.lib.kube.leader import LeaderLease
from carico_agent.lib.net import metrics
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.node.publish.families import status_metrics
from carico_agent.node.publish.status import WorkStatus
from carico_agent.plane.diagnosis import ComponentRow, PlaneDiagnosis
from carico_agent.plane.metrics import families as plane_families
from carico_agent.settings import Settings, override
from lab.support.sample_node import SampleNode
from tests.burst.test_service import Served
from tests.conftest import TREE, AgentProcess
from tests.recommend.prometheus_server import Exporter, Server

QUIET = ("carico_absent", "carico_container_events_total")
"""Nothing need be missing on a test machine, and no container need start; the agent exports both by name."""


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((TREE / "deploy/grafana/carico.json").read_text())["panels"]
    return found


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def node_families() -> list[metrics.Family]:
    """With jobs, and with what the method carico adds."""
    units = {"method": "carico", "capacity": 1.5, "baseline": 4.0, "per_pod_cost": 0.5, "sigma": 0.5}
    status = replace(SampleNode().status(time.time()), work=WorkStatus(3, 1, 0, 900.0, 500.0), **units)
    return status_metrics(replace(status, direction={"cpu": 0.8, "memory": 0.6}), age_s=0.4)


def service_families(folder: Path) -> list[metrics.Family]:
    """Extender, control plane and burst; each has a little to show."""
    kubeconfig = folder / "kubeconfig.json"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    kubeconfig.write_text(
        json.dumps({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"})
    )
    settings = override(Settings(), "kubernetes", kubeconfig=str(kubeconfig))
    settings = override(settings, "node", state=str(folder))
    extender = ExtenderServer(settings)
    extender.routes()
    extender.latency["filter"].record(0.003)
    row = ComponentRow("kube-apiserver", 12.0, 40.0, 0.3, 0.15, 1.0, 600, 0.02)
    plane = plane_families(PlaneDiagnosis(60.0, [row], [], [], {}, 2.0, False, "", ""), 0, 0, 7)
    stage = Served()
    stage.wait_at_home("a")
    lease = LeaderLease(stage.home, "carico", "carico-burst", "me")  # type: ignore[arg-type]
    burst = burst_families(stage.service, lease, stage.home, OwnCost(), dropped=0)  # type: ignore[arg-type]
    return [*extender._families(), *plane, *burst]


def merged(agent_text: str, families: Iterable[metrics.Family]) -> str:
    """One exposition: of a family that several export, the first that has samples; the agent's own come last."""
    unique: dict[str, metrics.Family] = {}
    for family in families:
        if family.samples and not family.name.startswith("process_"):
            unique.setdefault(family.name, family)
    own = re.compile(rf"^(?:# \w+ )?(?:{'|'.join(unique)})(?:[{{ ]|$)")
    kept = [line for line in agent_text.splitlines() if not own.match(line)]
    return "\n".join(kept) + "\n" + metrics.render(unique.values())


def ask(server: Server, query: str) -> list[Any]:
    """What Grafana would get for all nodes; fails on a query that Prometheus does not understand."""
    asked = urllib.parse.quote(query.replace("$instance", ".*"))
    with urllib.request.urlopen(f"{server.url}/api/v1/query?query={asked}", timeout=10) as answer:
        result: list[Any] = json.load(answer)["data"]["result"]
    return result


@pytest.mark.long
async def test_every_query_finds_something(tmp_path: Path, start_agent: Callable[..., AgentProcess]) -> None:
    process = start_agent()
    process.wait(lambda agent: agent.status()["sequence"] >= 2)
    families = [*node_families(), *service_families(tmp_path)]

    def text() -> str:
        curl = ["curl", "-sS", "--unix-socket", process.socket, "http://localhost/metrics"]
        return merged(subprocess.run(curl, capture_output=True, check=True, text=True).stdout, families)

    exporting = (TREE / "carico_agent/node/agent.py").read_text()
    assert all(f'"{name}"' in exporting for name in QUIET)
    exporter = Exporter(text)
    server = Server(tmp_path, scrape=exporter.port, interval="300ms")
    try:
        server.wait_for("carico_pod_capacity", 3)
        empty = [query for query in queries() if not ask(server, query)]
        assert [query for query in empty if not any(name in query for name in QUIET)] == []
        assert ask(server, "carico_no_such_thing") == [], "an empty answer is noticed"
    finally:
        server.close()
        exporter.close()


def test_no_two_panels_stand_in_one_place() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels():
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in panels()}) == len(panels())


@pytest.mark.parametrize("subject", ["carico_workload_", "carico_work_left", "carico_plane_", "carico_burst_"])
def test_each_subject_is_on_it(subject: str) -> None:
    assert any(subject in query for query in queries())
