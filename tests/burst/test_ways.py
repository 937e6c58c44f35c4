"""Clusters that are made on demand: the kubeconfig that comes back, what is ordered, and what a lost cluster leaves."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from carico_agent.burst.catalogue import BadPrices, parse_prices
from carico_agent.burst.choice import JobNeeds
from carico_agent.burst.daemon import home_access, problems
from carico_agent.burst.job_logs import MAX_TRIES, LogKeeper, config_map, name_of
from carico_agent.burst.objects import State, home_job
from carico_agent.burst.overflow import Asked, NodeRoom, Waiting
from carico_agent.burst.planner import BurstPolicy, Candidate, Growth, TargetState, plan
from carico_agent.burst.protocol import Action, CopyPlace, Intent, Observed, Suspends, next_action
from carico_agent.burst.provisioner import ClusterOffer, Provisioner
from carico_agent.lib.kube.access import Access, from_text
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import BadAccess, Unreachable
from carico_agent.settings import BurstSettings
from tests.burst.fake_client import FakeClient
from tests.burst.model import SEAL, Cluster
from tests.burst.test_mover import fit
from tests.burst.test_provisioner import Fake

GPU = "nvidia.com/gpu"
CATALOGUE = """
[machines.west]
plain = 0.5
big = { price = 0.68, cpu = 4, memory_gb = 8 }
gpu = { price = 1.2, spot_price = 0.4, cpu = 4, resources = { "nvidia.com/gpu" = 1 }, taints = ["gpu=yes:NoSchedule"] }
"""


def kubeconfig(server: str = "https://127.0.0.1:1", **user: Any) -> str:
    return json.dumps(
        {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
    )


# ---- the way in


@pytest.mark.parametrize("user", [{"exec": {"command": "sh"}}, {"tokenFile": "/etc/shadow"}, {"client-key": "/k"}])
def test_a_kubeconfig_that_came_from_elsewhere_names_no_file_and_no_program(user: dict[str, Any]) -> None:
    with pytest.raises(BadAccess, match="is not allowed here"):
        from_text(kubeconfig(**user), "kubeconfig of cloud")
    assert from_text(kubeconfig(), "kubeconfig of cloud").token == "t"


async def test_a_target_without_a_kubeconfig_does_not_answer_and_another_one_takes_effect() -> None:
    async with KubeClient(Access("")) as client:
        with pytest.raises(Unreachable, match="no kubeconfig is known"):
            await client.get("/version")
        client.use(from_text(kubeconfig(), "x"))
        assert (client.access.server, client.generation) == ("https://127.0.0.1:1", 1)


class HandsBack(Fake):
    """A command that prints a kubeconfig as well."""

    def hand_back(self, text: str) -> None:
        code = (self.folder / "provisioner.py").read_text()
        line = 'print(json.dumps({"state": "ready" if state["nodes"] else "absent", "nodes": state["nodes"]}))'
        assert line in code
        answer = f'"kubeconfig": {text!r} if state["nodes"] else ""'
        (self.folder / "provisioner.py").write_text(
            code.replace('"nodes": state["nodes"]}))', f'"nodes": state["nodes"], {answer}}}))')
        )


def made(fake: Fake, client: FakeClient) -> Provisioner:
    offer = ClusterOffer("west", False, {"gpu": {"price": 1.2}}, on_demand=True)
    return Provisioner(client, "carico", "cloud", (str(fake.path),), 20.0, offer)  # type: ignore[arg-type]


async def test_the_kubeconfig_is_kept_for_all_replicas_and_forgotten_with_the_cluster(tmp_path: Path) -> None:
    fake, client = HandsBack(tmp_path), FakeClient(Cluster("home"))
    fake.hand_back(kubeconfig())
    one = made(fake, client)
    await one.load()
    await one.ask("scale", 1, {"gpu": 1}, {"jobs": 1, "requests": {GPU: 1.0}})
    await one.poll()
    assert one.kubeconfig == kubeconfig()
    secret = client.objects["/api/v1/namespaces/carico/secrets/carico-burst-cloud-kubeconfig"]
    assert base64.b64decode(secret["data"]["kubeconfig"]).decode() == kubeconfig()
    other = made(fake, client)  # another replica, or the next process
    await other.load()
    assert (other.kubeconfig, other.last_report.state) == (kubeconfig(), "ready")
    assert kubeconfig() not in json.dumps(client.objects["/api/v1/namespaces/carico/configmaps/carico-burst-cloud"])
    await one.ask("delete")
    await one.poll()
    assert (one.report.state, one.kubeconfig) == ("absent", "")
    await other.load()
    assert other.kubeconfig == ""


async def test_the_command_is_told_what_waits_and_what_to_make(tmp_path: Path) -> None:
    fake, client = Fake(tmp_path), FakeClient(Cluster("home"))
    one = made(fake, client)
    await one.load()
    await one.ask("scale", 2, {"gpu": 2}, {"jobs": 3, "requests": {GPU: 2.0}})
    await one.poll({"busy-node"})
    told = json.loads((tmp_path / "requests").read_text().splitlines()[-1])
    assert told["machines"] == {"gpu": {"price": 1.2, "nodes": 2}}
    assert (told["region"], told["pending"]["requests"], told["busy"]) == ("west", {GPU: 2.0}, ["busy-node"])


# ---- the catalogue


def test_the_catalogue_says_what_a_node_will_have() -> None:
    machines = parse_prices(CATALOGUE).machines["west"]
    otherwise = NodeRoom("new", 16.0, 16e9, 110)
    assert (machines["plain"].price, machines["plain"].node("plain", "west", otherwise).cpu) == (0.5, 16.0)
    node = machines["gpu"].node("gpu", "west", otherwise)
    assert (node.cpu, node.memory, node.others) == (4, 16e9, {GPU: 1})
    assert node.traits.labels["node.kubernetes.io/instance-type"] == "gpu"
    assert [machines[name].paid_per_h(spot=True) for name in ("gpu", "big")] == [0.4, None]


@pytest.mark.parametrize(
    "row,why",
    [
        ("{ cpu = 4 }", "a.b: has no price"),
        ("{ price = 1, cpus = 4 }", "a.b.cpus: unknown key, did you mean cpu"),
        ("{ price = 1, taints = ['gpu'] }", "is no taint"),
        ("{ price = -1 }", "a.b.price"),
    ],
)
def test_a_row_that_is_wrong_is_refused(row: str, why: str) -> None:
    with pytest.raises(BadPrices, match=why):
        parse_prices(f"[machines.a]\nb = {row}\n")


def test_each_job_gets_the_cheapest_machine_that_takes_it() -> None:
    machines = parse_prices(CATALOGUE).machines["west"]
    growths = [
        Growth(machines[name].node(name, "west", NodeRoom("new", 4.0, 8e9)), 60.0, 4, (), name, machines[name].price)
        for name in ("gpu", "big")
    ]
    gpu = Asked(1.0, 1e9, {GPU: 1.0})
    waiting = [Waiting(("d", "plain"), "k", Asked(1.0, 1e9), 60.0), Waiting(("d", "gpu"), "k", gpu, 60.0)]
    candidates = [Candidate(one, JobNeeds(600.0)) for one in waiting]
    cloud = TargetState("cloud", "west", 0.68, growths=growths)
    added = plan(candidates, [], [], [cloud], BurstPolicy())
    assert added.machines == {"cloud": {"big": 1}}  # nothing tolerates the taint of gpu
    assert "does not tolerate the taint gpu=yes:NoSchedule" in added.reasons["d", "gpu"]


def test_a_job_that_home_can_never_take_does_not_wait_for_others_to_end() -> None:
    gpu = Candidate(Waiting(("d", "gpu"), "k", Asked(1.0, 0.0, {GPU: 1.0}), 60.0), JobNeeds(600.0))
    cloud = TargetState("cloud", "", 0.68, growths=[Growth(NodeRoom("new", 4.0, others={GPU: 1.0}), 300.0, 4)])
    home = [NodeRoom("home-1", 8.0)]
    assert plan([gpu], home, [5.0], [cloud], BurstPolicy(), home_empty=home).add == {"cloud": 1}


# ---- a cluster that is proven gone


@pytest.mark.parametrize("state", [State.HOLDING, State.AWAY, State.RECALLING, State.RETURNED])
def test_no_job_is_held_by_a_cluster_that_is_proven_gone(state: State) -> None:
    body = fit("a")
    body["metadata"] |= {"uid": "u", "resourceVersion": "1", "namespace": "default", "finalizers": ["carico.dev/burst"]}
    record = {"state": state, "to": "cloud", "epoch": 1, "parallelism": 1, "cluster": "c", "namespace": "default"}
    body["metadata"]["annotations"] = {"carico.dev/burst-ledger": SEAL.sealed(record, ("default", "a", "u"))}
    body["spec"]["parallelism"] = 0
    home = home_job(body, SEAL)
    verdict = next_action(Observed(home), Intent.FORGET, Suspends(), CopyPlace())
    ends = {State.HOLDING: Action.UNDO, State.RETURNED: Action.CLEAR}
    assert verdict.action == ends.get(state, Action.ABANDON)


# ---- logs


async def test_logs_that_cannot_be_read_do_not_keep_a_job_for_ever() -> None:
    home, cloud = FakeClient(Cluster("home")), FakeClient(Cluster("cloud"))
    body = fit("a")
    body["metadata"] |= {"uid": "u", "resourceVersion": "1", "namespace": "default"}
    job = home_job(body, SEAL)
    pod = {
        "metadata": {"name": "a-1", "creationTimestamp": ""},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
    }
    cloud.lists["/api/v1/namespaces//pods"] = [pod]

    async def chunks(path: str, timeout_s: float) -> Any:
        raise Unreachable("the kubelet is away")
        yield b""

    cloud.chunks = chunks  # type: ignore[attr-defined]
    keeper = LogKeeper(home)  # type: ignore[arg-type]
    answers = [await keeper.keep(job, cloud) for _ in range(MAX_TRIES)]  # type: ignore[arg-type]
    assert [bool(why) for why in answers] == [True] * (MAX_TRIES - 1) + [False]
    kept = home.objects[f"/api/v1/namespaces/default/configmaps/{name_of('a')}"]
    assert "the kubelet is away" in kept["data"]["a-1.c"]
    assert (keeper.has(job), keeper.lost) == (True, 1)
    assert config_map(job, [])["metadata"]["ownerReferences"][0]["uid"] == "u"


# ---- settings


def test_check_config_names_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(CATALOGUE)

    def found(**target: Any) -> list[str]:
        return problems(BurstSettings(prices=str(tmp_path / "prices.toml"), targets={"cloud": target}))

    good = {"provisioner": ["sh"], "region": "west", "machine": "big"}
    assert found(**good) == []
    assert found(**{**good, "machin": "big"}) == ["burst.targets.cloud.machin: unknown key, did you mean machine?"]
    assert "burst.prices has no huge in region west" in found(**{**good, "machine": "huge"})[0]
    assert "No such file" in found(**good, kubeconfig=str(tmp_path / "none"))[0]
    assert "there is no program carico-none" in found(**{**good, "provisioner": ["carico-none"]})[0]
    assert "only a target with a provisioner can do without" in found(region="west", machine="big")[0]


def test_home_is_found_as_kubectl_finds_it(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(kubeconfig("https://home:6443"))
    assert home_access(BurstSettings(), {"KUBECONFIG": str(file)}).server == "https://home:6443"
    with pytest.raises(BadAccess, match="does not exist"):
        home_access(BurstSettings(), {"KUBECONFIG": str(tmp_path / "none")})
