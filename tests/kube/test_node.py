"""Publishing on Node objects of a real API server, read by an unmodified kube-scheduler."""

import asyncio
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from carico_agent.cli import main
from carico_agent.lib.kube.access import from_kubeconfig
from carico_agent.lib.kube.client import KubeClient
from carico_agent.node.publish.pace import count_nodes
from carico_agent.node.publish.throttle import MAX_CREDIT, MAX_DEBT
from lab.support.control_plane import Plane
from lab.support.etcd_objects import copies
from lab.support.kube_admin import AdminError
from lab.support.waiting import wait_for
from tests.conftest import AgentProcess
from tests.kube.conftest import until_steady

Start = Callable[..., AgentProcess]
TRACE = str(Path(__file__).parent.parent / "golden/bursts.trace.gz")
RESOURCE = "carico.dev/pods"
STEADY = ("--replay", TRACE, "--speed", "0.1")
"""A trace's first seconds, slowly: an idle node with room, whatever else the machine of the tests is doing."""


def set_amount(cluster: Plane, node: str, amount: int) -> None:
    """As somebody else would write it."""
    have = {RESOURCE: str(amount)}
    cluster.admin.merge(f"/api/v1/nodes/{node}/status", {"status": {"capacity": have, "allocatable": have}})


def annotations(node: Any) -> dict[str, str]:
    found = node["metadata"].get("annotations") or {}
    return {key: text for key, text in found.items() if key.startswith("carico.dev/")}


def amounts(node: Any) -> tuple[str | None, str | None]:
    return node["status"]["capacity"].get(RESOURCE), node["status"]["allocatable"].get(RESOURCE)


def published(cluster: Plane, name: str) -> Any:
    """The node, once something has been published on it."""
    return wait_for(
        lambda: (node := cluster.admin.node(name)) and "carico.dev/slots" in annotations(node) and node,
        f"{name} has published",
    )


def test_annotations_and_resource_by_a_real_agent(cluster: Plane, start_agents: Start) -> None:
    cluster.admin.add_node("n1")
    agent = start_agents("n1", "--kubeconfig", str(cluster.kubeconfig("agent-token")), *STEADY)
    node = published(cluster, "n1")
    published_values = annotations(node)
    status = json.loads(published_values["carico.dev/status"])
    assert float(published_values["carico.dev/pod-capacity"]) >= 0
    assert {"v", "mode", "ttl_s", "seq", "time", "low", "high", "limiting", "pods", "slots", "places"} <= status.keys()
    assert abs(datetime.fromisoformat(status["time"]) - datetime.now(UTC)).total_seconds() < 30
    assert status["time"].endswith("Z")
    # The trace's Pods ran on another machine: the API server knows none of them.
    assert status["places"] == int(published_values["carico.dev/slots"]) - status["pods"] > 0
    assert amounts(node) == (str(status["places"]),) * 2
    wait_for(lambda: agent.client().status()["kubernetes"] == "published", "the status says so")
    own = agent.client().request("GET", "/v1/self")
    assert own["publishers"]["kubernetes"]["condition"] == "published"
    # What was not held is taken back when the agent stops: nobody would correct it.
    assert agent.stop() == 0
    node = cluster.admin.node("n1")
    assert amounts(node) == ("0", "0")
    assert "carico.dev/slots" not in annotations(node)


def test_it_is_reasserted_after_a_kubelet_restart_and_removed_by_command(
    cluster: Plane, start_agents: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.admin.add_node("n1")
    agent = start_agents("n1", "--kubeconfig", str(cluster.kubeconfig("agent-token")), *STEADY)
    before = amounts(published(cluster, "n1"))
    # A kubelet that restarts zeroes extended resources it does not know.
    set_amount(cluster, "n1", 0)
    wait_for(lambda: amounts(cluster.admin.node("n1"))[0] not in ("0", None), "the resource is back", 20)
    assert abs(int(amounts(cluster.admin.node("n1"))[1] or 0) - int(before[1] or 0)) <= 2
    # Somebody deletes the annotations.
    cluster.admin.merge("/api/v1/nodes/n1", {"metadata": {"annotations": {"carico.dev/status": None}}})
    wait_for(lambda: "carico.dev/status" in annotations(cluster.admin.node("n1")), "the annotations are back", 20)
    agent.process.kill()
    agent.process.wait()
    admin = str(cluster.kubeconfig("admin-token"))
    assert main(["kube", "remove", "--all", "--kubeconfig", admin]) == 0
    assert capsys.readouterr().out == "n1: removed\n"
    node = cluster.admin.node("n1")
    assert annotations(node) == {}
    assert amounts(node) == (None, None)


def test_removal_leaves_what_pods_hold(cluster: Plane, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.admin.add_node("n1")
    set_amount(cluster, "n1", 5)
    cluster.admin.add_pod("holder", 2, nodeName="n1")
    assert main(["kube", "remove", "n1", "--kubeconfig", str(cluster.kubeconfig("admin-token"))]) == 1
    assert "still hold 2" in capsys.readouterr().out
    assert amounts(cluster.admin.node("n1")) == ("2", "2")


def test_pods_are_bound_exactly_up_to_the_slots_of_real_agents(cluster: Plane, start_agents: Start) -> None:
    """Three real agents replay a trace; an unmodified kube-scheduler does the rest."""
    cluster.start_scheduler()
    names, kubeconfig = ["n1", "n2", "n3"], str(cluster.kubeconfig("agent-token"))
    for name in names:
        cluster.admin.add_node(name)
        start_agents(name, "--kubeconfig", kubeconfig, *STEADY)
    for name in names:
        published(cluster, name)
    slots = {name: int(amounts(cluster.admin.node(name))[1] or 0) for name in names}
    assert all(slots.values())
    for number in range(sum(slots.values()) + 5):
        cluster.admin.add_pod(f"p{number}")
    assert until_steady(cluster.admin.bound) == slots
    # Full: five wait. One ends, one of the five comes.
    full = next(pod for pod in cluster.admin.pods() if pod["spec"].get("nodeName") == "n2")
    cluster.admin.delete(f"/api/v1/namespaces/default/pods/{full['metadata']['name']}")
    wait_for(lambda: len(cluster.admin.pods()) == sum(slots.values()) + 4, "it is gone")
    wait_for(lambda: cluster.admin.bound() == slots, "the place is taken")


AWAY_S = 60.0


def test_api_server_away_and_back(cluster: Plane, start_agents: Start) -> None:
    """A minute without it, three agents: they go on, knock now and then, and are back within five seconds."""
    agents = {}
    for name in ("n1", "n2", "n3"):
        cluster.admin.add_node(name)
        agents[name] = start_agents(name, "--kubeconfig", str(cluster.kubeconfig("agent-token")))
    for name in agents:
        published(cluster, name)

    def sequence(name: str) -> int:
        return int(json.loads(annotations(cluster.admin.node(name))["carico.dev/status"])["seq"])

    def own(agent: AgentProcess) -> Any:
        return agent.client().request("GET", "/v1/self")

    before = {name: sequence(name) for name in agents}
    cluster.stop_api()
    ticks = {name: own(agent)["ticks"] for name, agent in agents.items()}
    expected = dict.fromkeys(agents, 0.0)
    try:
        with Knocks(cluster.port) as knocks:
            for _ in range(int(AWAY_S / 5)):
                time.sleep(5)
                for name, agent in agents.items():  # ten a second; less if the agent finds this machine too busy
                    expected[name] += 5 / agent.client().status()["sampling"]["period_s"]
        sampled = {name: own(agent)["ticks"] - ticks[name] for name, agent in agents.items()}
        conditions = [agent.client().status()["kubernetes"] for agent in agents.values()]
    finally:
        since = len(cluster.audit())
        cluster.start_api()
    back_s = time.time()
    print(f"{sampled} samples of {expected} and {knocks.count} connections in {AWAY_S:g} s without the API server")
    assert all(sampled[name] >= 0.7 * expected[name] for name in agents)
    assert all("cannot be reached" in condition for condition in conditions)
    assert len(agents) * AWAY_S / 10 <= knocks.count <= len(agents) * AWAY_S / 2  # one in about 3 s each
    wait_for(lambda: all(sequence(name) > before[name] + 10 for name in agents), "published again")
    time.sleep(6)
    asked = [entry for entry in cluster.audit()[since:] if "carico-agent" in entry["user"]["username"]]
    for name, agent in agents.items():
        first_s = min(
            when(entry)
            for entry in asked
            if entry["verb"] == "patch"
            and entry["objectRef"]["name"] == name
            and entry["responseStatus"]["code"] == 200
        )
        print(f"{name}: published {first_s - back_s:+.1f} s from the moment the server was ready")
        assert first_s - back_s < 5
        log = agent.log.read_text()
        assert len(re.findall("WARNING.*cannot be reached", log)) == 1
        assert len(re.findall("INFO.*works again", log)) == 1
    print("asked:", Counter(f"{entry['verb']} {entry['objectRef']['resource']}" for entry in asked))
    requests = {entry["auditID"] for entry in asked}  # the log has two entries of a watch: its start and its end
    assert len(requests) <= 18 * len(agents)  # two watches that a starting server refuses and forgets, lists, writes


class Knocks:
    """Stands where the API server was, counts who comes, and lets nobody in."""

    def __init__(self, port: int) -> None:
        self.count = 0
        self._listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
        self._thread = threading.Thread(target=self._answer)

    def __enter__(self) -> "Knocks":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends accept
        self._thread.join()
        self._listener.close()

    def _answer(self) -> None:
        while True:
            try:
                visitor, _ = self._listener.accept()
            except OSError:
                return
            self.count += 1
            visitor.close()


def when(entry: Any) -> float:
    """When the server received a request [s since 1970]."""
    return datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()


# ---- what can be wrong


def says(agent: AgentProcess, text: str) -> None:
    """The condition says it, the log says it once, and sampling goes on."""
    wait_for(lambda: text in agent.client().status()["kubernetes"], text)
    ticks = agent.client().request("GET", "/v1/self")["ticks"]
    time.sleep(3)
    assert agent.client().request("GET", "/v1/self")["ticks"] > ticks
    lines = [line for line in agent.log.read_text().splitlines() if text in line and "Pod-Capacity" not in line]
    assert len(lines) == 1, lines


def doctor(capsys: pytest.CaptureFixture[str], kubeconfig: Path, node: str) -> str:
    main(["doctor", "--kubeconfig", str(kubeconfig), "--node", node])
    return capsys.readouterr().out


def test_wrong_token(cluster: Plane, start_agents: Start, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.admin.add_node("n1")
    kubeconfig = cluster.kubeconfig("no-such-token")
    agent = start_agents("n1", "--kubeconfig", str(kubeconfig))
    agent.wait()
    says(agent, "does not accept these credentials (401)")
    assert "does not accept these credentials (401)" in doctor(capsys, kubeconfig, "n1")


def test_ended_certificate(cluster: Plane, start_agents: Start, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.admin.add_node("n1")
    certificate, key = cluster.client_certificate("ended", "system:serviceaccount:carico:carico-agent", ended=True)
    kubeconfig = cluster.kubeconfig(**{"client-certificate": str(certificate), "client-key": str(key)})
    agent = start_agents("n1", "--kubeconfig", str(kubeconfig))
    agent.wait()
    says(agent, "the client certificate ended on 2020-01-02 00:00 UTC")
    assert "ended on 2020-01-02" in doctor(capsys, kubeconfig, "n1")


def test_good_certificate(cluster: Plane, start_agents: Start) -> None:
    cluster.admin.add_node("n1")
    certificate, key = cluster.client_certificate("good", "system:serviceaccount:carico:carico-agent")
    kubeconfig = cluster.kubeconfig(**{"client-certificate": str(certificate), "client-key": str(key)})
    start_agents("n1", "--kubeconfig", str(kubeconfig))
    published(cluster, "n1")


def test_untrusted_server(cluster: Plane, start_agents: Start, tmp_path: Path) -> None:
    document = json.loads(cluster.kubeconfig("agent-token").read_text())
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    kubeconfig = tmp_path / "untrusting.json"
    kubeconfig.write_text(json.dumps(document))
    agent = start_agents("n1", "--kubeconfig", str(kubeconfig))
    agent.wait()
    says(agent, "is not trusted")


RIGHTS = {("list", "nodes"), ("watch", "nodes"), ("patch", "nodes/status"), ("list", "pods"), ("watch", "pods")}


@pytest.mark.parametrize(("verb", "what"), [("patch", "nodes/status"), ("list", "pods"), ("list", "nodes")])
def test_missing_right(
    cluster: Plane, start_agents: Start, capsys: pytest.CaptureFixture[str], verb: str, what: str
) -> None:
    cluster.admin.add_node("n1")
    group, meta = "rbac.authorization.k8s.io", {"name": f"all-but-{verb}-{what.replace('/', '-')}"}
    granted = sorted(RIGHTS - {(verb, what)})
    user = f"nobody-{meta['name']}"
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": meta,
        "rules": [{"apiGroups": [""], "resources": [on], "verbs": [may]} for may, on in granted],
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", **meta},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    cluster.admin.post(f"/apis/{group}/v1/clusterroles", role)
    cluster.admin.post(f"/apis/{group}/v1/clusterrolebindings", binding)
    certificate, key = cluster.client_certificate(meta["name"], user)
    kubeconfig = cluster.kubeconfig(**{"client-certificate": str(certificate), "client-key": str(key)})
    agent = start_agents("n1", "--kubeconfig", str(kubeconfig))
    agent.wait()
    says(agent, f'missing right: "{verb}" on "{what}" for {user}')
    found = doctor(capsys, kubeconfig, "n1")
    assert f'missing right: "{verb}" on "{what}"' in found
    assert all(f'"{may}" on "{on}" is granted' in found for may, on in granted)


def test_deleted_node_and_its_return(cluster: Plane, start_agents: Start, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.admin.add_node("n1")
    kubeconfig = cluster.kubeconfig("agent-token")
    agent = start_agents("n1", "--kubeconfig", str(kubeconfig))
    published(cluster, "n1")
    cluster.admin.delete("/api/v1/nodes/n1")
    says(agent, 'nodes "n1" not found on the API server')
    assert 'nodes "n1" not found' in doctor(capsys, kubeconfig, "n1")
    cluster.admin.add_node("n1")
    published(cluster, "n1")
    wait_for(lambda: agent.client().status()["kubernetes"] == "published", "it is published again")


def test_service_account_token(cluster: Plane, start_agents: Start, tmp_path: Path) -> None:
    """From the file a Pod finds."""
    cluster.admin.add_node("n1")
    (tmp_path / "token").write_text(cluster.admin.agent_token("n1"))
    kubeconfig = cluster.kubeconfig(tokenFile=str(tmp_path / "token"))
    start_agents("n1", "--kubeconfig", str(kubeconfig))
    published(cluster, "n1")


def test_writes_stay_within_the_budget(cluster: Plane, start_agents: Start) -> None:
    """A busy trace, ten times too fast: one write in five seconds on the average, falls a second apart."""
    cluster.admin.add_node("n1")
    since = len(cluster.audit())
    kubeconfig = str(cluster.kubeconfig("agent-token"))
    start_agents("n1", "--kubeconfig", kubeconfig, "--replay", TRACE, "--speed", "10", "--repeat")
    published(cluster, "n1")
    time.sleep(25)
    entries = [entry for entry in cluster.audit()[since:] if entry["verb"] == "patch"]
    times = [when(entry) for entry in entries if entry["objectRef"]["resource"] == "nodes"]
    assert 2 <= len(times) <= (times[-1] - times[0]) / 5 + MAX_CREDIT + MAX_DEBT + 1, times
    assert len(entries) - len(times) <= len(times) + 2  # its Lease: before a fall, or after a rise
    # A second where they are sent; on a busy machine one arrives a little later than the next.
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(times)), times


def listed_by_etcd(cluster: Plane) -> int:
    """How often the API server has listed Pods in etcd; the rest came out of its watch cache."""
    lines = cluster.admin.get("/metrics").splitlines()
    lists = [line for line in lines if line.startswith("etcd_request_duration_seconds_count{") and LIST in line]
    assert lists, "this API server counts no lists"
    return sum(int(line.rpartition(" ")[2]) for line in lists if re.search(r'core\.Pod(List)?"|"pods"', line))


LIST = 'operation="list"'
FOREIGN_PODS = 5000


@pytest.fixture
def crowded(cluster: Plane) -> Iterator[Plane]:
    """Among 5,000 Pods of other nodes."""
    cluster.admin.add_pod("foreign", 0, nodeName="elsewhere")
    cluster.etcd.put(copies(cluster.admin.get("/api/v1/namespaces/default/pods/foreign"), FOREIGN_PODS))
    cached = "/api/v1/namespaces/default/pods?resourceVersion=0&fieldSelector=spec.nodeName=elsewhere"
    wait_for(lambda: len(cluster.admin.get(cached)["items"]) == FOREIGN_PODS + 1, "the watch cache has them all")
    yield cluster
    cluster.etcd.delete("/registry/pods/default/foreign-")
    wait_for(lambda: len(cluster.admin.get(cached)["items"]) == 1, "they are gone")


def test_an_agents_start_makes_etcd_list_no_pods(crowded: Plane, start_agents: Start) -> None:
    crowded.admin.add_node("n1")
    before = listed_by_etcd(crowded)
    start_agents("n1", "--kubeconfig", str(crowded.kubeconfig("agent-token")), *STEADY)
    published(crowded, "n1")
    assert listed_by_etcd(crowded) == before
    # That lists of etcd are counted: this state is older than the watch cache, whose snapshots answer all later ones.
    try:
        crowded.admin.get("/api/v1/namespaces/default/pods?limit=1&resourceVersion=1&resourceVersionMatch=Exact")
    except AdminError as error:
        assert error.status == 410  # etcd was asked, and has compacted it meanwhile
    assert listed_by_etcd(crowded) > before


async def test_the_number_of_nodes_is_known_without_listing_them(cluster: Plane) -> None:
    """By a right of the agents; their pace follows it."""
    for name in ("n1", "n2", "n3"):
        await asyncio.to_thread(cluster.admin.add_node, name)
    async with KubeClient(from_kubeconfig(cluster.kubeconfig("agent-token"))) as client:
        assert (await count_nodes(client), client.requests) == (3, 1)


def test_the_second_agent_of_a_node_refuses(cluster: Plane, start_agents: Start, tmp_path: Path) -> None:
    cluster.admin.add_node("n1")
    kubeconfig = str(cluster.kubeconfig("agent-token"))
    first = start_agents("n1", "--kubeconfig", kubeconfig, *STEADY)
    published(cluster, "n1")
    other = start_agents("other", "--node", "n1", "--kubeconfig", kubeconfig, *STEADY)
    other.wait()
    says(other, 'publishes for node "n1"')
    wait_for(lambda: first.client().status()["kubernetes"] == "published", "the first one goes on")
    # The first one stops and says so: its Lease names no holder, so a restarted other one need not wait.
    assert first.stop() == 0
    assert other.stop() == 0
    again = start_agents("other", "--node", "n1", "--kubeconfig", kubeconfig, *STEADY)
    again.wait(lambda client: client.status()["kubernetes"] == "published")
