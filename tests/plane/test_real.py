"""What an operator sees on a real control plane: a peak and then a slow webhook, two API servers behind a balancer, a
scheduler and a controller manager that ask for credentials, and a removal in any order."""

import asyncio
import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from carico_agent.lib.kube.access import from_kubeconfig
from carico_agent.lib.kube.client import KubeClient
from carico_agent.plane.exposition import read
from carico_agent.plane.observer import Observer
from carico_agent.plane.seats import NAME, Reserve, read_levels
from carico_agent.plane.shares import max_width, reserve_for, seats_of
from carico_agent.settings import PlaneSettings
from lab.support.control_plane import Plane, binaries
from lab.support.kube_admin import HOOKS, Admin
from lab.support.waiting import free_port, wait_for
from tests.conftest import TREE
from tests.plane.test_seats import Service, levels_path, missing, reserve, traffic

pytestmark = pytest.mark.kube

BAD, GOOD = ("plain", "polls", "exact"), ("pages", "low")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/carico/leases/carico-plane"


class WholePlane(Plane):
    """With a controller manager, a second API server when asked for, and components that ask for credentials."""

    def _serving(self, name: str, kubeconfig: Path) -> list[str]:
        secured = [one for one in super()._serving(name, kubeconfig) if "always-allow-paths" not in one]
        return [*secured, f"--client-ca-file={self.ca}"]

    def _files(self) -> None:
        super()._files()
        with (self.folder / "tokens.csv").open("a") as file:
            file.write('controller-token,system:kube-controller-manager,system:kube-controller-manager,""\n')
            for name in ("low", "plain", "polls", "exact", "pages"):
                user = f"system:serviceaccount:default:{name}"
                file.write(f'{name}-token,{user},{name},"system:serviceaccounts"\n')
        audit = json.loads((self.folder / "audit.json").read_text())
        audit["rules"] = [{"level": "Metadata", "verbs": ["list"]}]
        (self.folder / "audit.json").write_text(json.dumps(audit))

    def start_controller_manager(self) -> None:
        config = self.kubeconfig("controller-token")
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            *self._serving("kube-controller-manager", config),
            "--authentication-skip-lookup=true",
            "--leader-elect=false",
            "--controllers=garbage-collector-controller,namespace-controller",
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={self.folder}/sa.key",
        )

    def start_second(self) -> None:
        """Another API server on the same etcd; `server` and `port` are then those of the second."""
        self._processes["kube-apiserver-first"] = self._processes.pop("kube-apiserver")
        self.port = free_port()
        self.server = f"https://127.0.0.1:{self.port}"
        self.start_api()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholePlane]:
    try:
        binaries()
    except LookupError as error:
        pytest.skip(f"no control plane: {error}")
    plane = WholePlane(tmp_path_factory.mktemp("plane"))
    try:
        plane.start()
        group = "rbac.authorization.k8s.io"
        names = ("system:kube-controller-manager", *(f"system:serviceaccount:default:{name}" for name in BAD + GOOD))
        subjects = [{"kind": "User", "name": name, "apiGroup": group} for name in names]
        admin = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": group}
        binding = {"metadata": {"name": "test-admins"}, "roleRef": admin, "subjects": subjects}
        plane.admin.post(f"/apis/{group}/v1/clusterrolebindings", binding)
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def deployed(plane: WholePlane) -> WholePlane:
    plane.apply(TREE / "deploy/base/00-namespace.yaml", *sorted((TREE / "deploy/plane").glob("[0-9]*.yaml")))
    return plane


@pytest.fixture
def service(deployed: WholePlane, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    made: list[Service] = []

    def make(**settings: Any) -> Service:
        made.append(Service(deployed, tmp_path / "one", **settings))
        return made[-1].start()

    yield make
    for one in made:
        if one.process is not None and one.process.poll() is None:
            one.end()


def carico(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "carico_agent", *arguments]
    return subprocess.run(command, cwd=TREE, capture_output=True, text=True, env={**os.environ, **environ})


# ---- an idle server


def test_an_idle_server_has_no_remedy(deployed: WholePlane, tmp_path: Path) -> None:
    """As an operator types it the first time, with the kubeconfig that kubectl would take."""
    done = carico(
        "plane", "--interval", "3", "--json", "--cores", "8", KUBECONFIG=str(deployed.kubeconfig("admin-token"))
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["components"][0]["utilisation"] < 0.1
    assert seen["remedy"] == "nothing to do"


# ---- a peak, then a slow webhook


@asynccontextmanager
async def slow_webhook(plane: Plane) -> AsyncIterator[None]:
    """Admits every ConfigMap, after 2 s."""

    async def admit(request: web.BaseRequest) -> web.StreamResponse:
        asked = await request.json()
        await asyncio.sleep(2.0)
        answer = {"uid": asked["request"]["uid"], "allowed": True}
        return web.json_response({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": answer})

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*plane.serving_certificate("slow"))
    runner, port = web.ServerRunner(web.Server(admit)), free_port()
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        "name": "slow.carico.dev",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/",
            "caBundle": base64.b64encode(plane.ca.read_bytes()).decode(),
        },
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 10,
    }
    plane.admin.post(HOOKS, {"metadata": {"name": "slow"}, "webhooks": [hook]})
    try:
        yield
    finally:
        plane.admin.delete(HOOKS)
        await runner.cleanup()


class Clients:
    """Service accounts of low priority: each of them sends one request after the other."""

    def __init__(self, plane: Plane, count: int) -> None:
        self._plane, self._count = plane, count
        self._session: aiohttp.ClientSession
        self._tasks: list[asyncio.Task[None]] = []
        self.answers: dict[int, int] = {}

    async def __aenter__(self) -> "Clients":
        tls = ssl.create_default_context(cafile=str(self._plane.ca))
        connector = aiohttp.TCPConnector(limit=0, ssl=tls)
        self._session = aiohttp.ClientSession(connector=connector, headers={"Authorization": "Bearer low-token"})
        return self

    def begin(self, method: str, path: str, body: Any = None) -> None:
        self._tasks += [asyncio.create_task(self._loop(method, path, body)) for _ in range(self._count)]

    async def _loop(self, method: str, path: str, body: Any) -> None:
        while True:
            async with self._session.request(method, self._plane.server + path, json=body) as answer:
                await answer.read()
                self.answers[answer.status] = self.answers.get(answer.status, 0) + 1

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def __aexit__(self, *error: object) -> None:
        await self.end()
        await self._session.close()


async def test_a_reserve_lets_go_when_a_webhook_is_slow(deployed: WholePlane, service: Callable[..., Service]) -> None:
    """An overload brings a reserve. Then requests wait for a webhook of 2 s and not for the CPU: the reserve is gone
    within two periods. Before, it stayed until the service ended, and the server went on to answer 429."""
    period_s = 2.0
    one = service(period_s=period_s, busy_ratio=0.7, min_seats=16, cores=0.5)
    configmap = {"metadata": {"generateName": "slow-"}, "data": {}}
    async with Clients(deployed, 8) as load:
        load.begin("GET", "/api/v1/namespaces")
        await asyncio.to_thread(one.wrote)
        await load.end()
    async with slow_webhook(deployed), Clients(deployed, 150) as waiting:
        began_s = time.monotonic()
        waiting.begin("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", configmap)
        await asyncio.to_thread(wait_for, lambda: missing(deployed, reserve(deployed)), "the reserve is gone", 60)
        gone_s = time.monotonic() - began_s
        why = (await asyncio.to_thread(one.shown))["seats"]["why"]
        await asyncio.sleep(3.0)
        waiting.answers.clear()
        await asyncio.sleep(6.0)
        assert waiting.answers.get(201, 0) > 100 and 429 not in waiting.answers, waiting.answers
        taken = (await asyncio.to_thread(one.shown))["diagnosis"]["executing"]
        assert 120 <= taken <= 170, f"150 requests take a seat each nearly all the time, not {taken:.0f}"
    assert gone_s <= 2 * period_s + 1.5, f"{gone_s:.1f} s"
    assert "level workload-low" in why and "given back" in why


# ---- LISTs are wide


def estimated(plane: Plane) -> tuple[float, float]:
    """Seats and requests of workload-low so far, by the server's own estimate."""
    name = "apiserver_flowcontrol_work_estimated_seats"
    found = read(
        [plane.admin.get("/metrics").encode()], {f"{name}_{part}": ("priority_level",) for part in ("sum", "count")}
    )
    seats, requests = (found[f"{name}_{part}"].get(("workload-low",), 0.0) for part in ("sum", "count"))
    return seats, requests


def width_of_a_list(plane: Plane) -> float:
    low = Admin(plane.server, plane.ca, "low-token")
    before = estimated(plane)
    low.get("/api/v1/namespaces/wide/configmaps")
    after = estimated(plane)
    return (after[0] - before[0]) / (after[1] - before[1])


def test_a_reserve_takes_the_width_out_of_lists(deployed: WholePlane) -> None:
    """Why a reserve is sized for their width beside it: the server counts a LIST as at most 15 % of a level's seats."""
    deployed.admin.post("/api/v1/namespaces", {"metadata": {"name": "wide"}})
    for n in range(10):
        body = {"metadata": {"name": f"wide-{n}"}, "data": {"text": "x" * 500_000}}
        deployed.admin.post("/api/v1/namespaces/wide/configmaps", body)
    deployed.stop_api()  # it counts objects once a minute, and when it starts
    deployed.start_api()
    path, key = levels_path(deployed), "nominalConcurrencyShares"
    items = deployed.admin.get(path)["items"]
    shares = read_levels(items, "v1").shares
    most = max_width(seats_of(600, shares)["workload-low"], 6)
    wide = wait_for(
        lambda: (width := width_of_a_list(deployed)) > 3 and width, "the server has counted the objects", 60
    )
    assert wide <= most and (wide == 10 or deployed.version < (1, 34)), "1 MB at once, 100 kB each"
    reserved = reserve_for(600, shares, 16)
    limited = {key: reserved, "limitResponse": {"type": "Reject"}}
    deployed.admin.post(path, {"metadata": {"name": NAME}, "spec": {"type": "Limited", "limited": limited}})
    try:
        wait_for(lambda: width_of_a_list(deployed) == 1, "the same LIST is as wide as a GET", 20)
        assert max_width(seats_of(600, shares, reserved)["workload-low"], 6) == 1
    finally:
        deployed.admin.delete(reserve(deployed))
        deployed.admin.delete("/api/v1/namespaces/wide/configmaps")


# ---- who lists


def test_clients_that_list_too_much_are_named_and_limited(deployed: WholePlane) -> None:
    """Three bad clients and a good one; what is printed for the worst passes a server-side dry run and then works."""
    space = "/api/v1/namespaces/many/configmaps"
    deployed.admin.post("/api/v1/namespaces", {"metadata": {"name": "many"}})
    for n in range(100):
        deployed.admin.post(space, {"metadata": {"name": f"c-{n}"}, "data": {"text": "x" * 2000}})
    version = deployed.admin.get(space)["metadata"]["resourceVersion"]
    queries = {
        "plain": "",
        "polls": "?resourceVersion=0&limit=10",
        "exact": f"?resourceVersion={version}&resourceVersionMatch=Exact",
        "pages": "?limit=10",
    }
    for name, query in queries.items():
        client = Admin(deployed.server, deployed.ca, f"{name}-token")
        for _ in range(20):
            client.get(space + query)
    lines = (deployed.folder / "audit.log").read_text().splitlines(keepends=True)
    (deployed.folder / "many.log").write_text("".join(line for line in lines if '"namespace":"many"' in line))
    log, config = str(deployed.folder / "many.log"), str(deployed.kubeconfig("admin-token"))
    done = carico("plane", "--kubeconfig", config, "--audit", log, "--interval", "1", "--json")
    named = [row for row in json.loads(done.stdout)["list_clients"] if row["resource"] == "configmaps"]
    assert {row["user"].rpartition(":")[2] for row in named} == set(BAD), named
    printed = carico("plane", "--kubeconfig", config, "--audit", log, "--limit-lists")
    assert printed.returncode == 0, printed.stderr
    assert any(f":{name}," in printed.stderr for name in BAD), printed.stderr
    kubectl = [str(deployed.bin / "kubectl"), "--kubeconfig", config]
    for more in (["--dry-run=server"], []):
        apply = subprocess.run(
            [*kubectl, "apply", *more, "-f", "-"], input=printed.stdout, capture_output=True, text=True
        )
        assert apply.returncode == 0 and apply.stdout.count("created") == 2, apply.stderr
    level, flow = (one["metadata"]["name"] for one in json.loads(printed.stdout)["items"])
    worst = flow.removeprefix("carico-limit-default-").removesuffix("-configmaps")
    try:
        wait_for(lambda: level in dispatched(deployed, worst, space), "its LISTs are in the new level", 20)
    finally:
        subprocess.run(
            [*kubectl, "delete", "-f", "-"], input=printed.stdout, text=True, check=True, capture_output=True
        )


def dispatched(plane: Plane, name: str, path: str) -> set[str]:
    """Levels that have dispatched a request, after one more LIST of this client."""
    Admin(plane.server, plane.ca, f"{name}-token").get(path)
    family = "apiserver_flowcontrol_dispatched_requests_total"
    return {level for (level,) in read([plane.admin.get("/metrics").encode()], {family: ("priority_level",)})[family]}


# ---- scheduler and controller manager


def test_components_are_read_with_the_kubeconfigs_token(deployed: WholePlane) -> None:
    deployed.start_scheduler()
    deployed.start_controller_manager()
    ports = deployed.ports
    names = ("kube-scheduler", "kube-controller-manager")
    urls = {name: f"https://127.0.0.1:{ports[name]}/metrics" for name in names}
    certificate, key = deployed.client_certificate("metrics", "admin")
    low = deployed.folder / "low.token"
    low.write_text("low-token")
    wait_for(lambda: all(answers(deployed, port) for port in ports.values()), "both serve", 60)

    def look(*components: str, token: str = "plane-token") -> dict[str, Any]:
        pairs = [word for one in components for word in ("--component", one)]
        config = str(deployed.kubeconfig(token))
        done = carico("plane", "--kubeconfig", config, "--interval", "1", "--json", *pairs)
        assert done.returncode == 0, done.stderr
        return {row["name"]: row for row in json.loads(done.stdout)["components"]}

    seen = look(*(f"{name}={url}" for name, url in urls.items()))
    for name in names:
        assert seen[name]["cores"] is not None and not seen[name]["missing"], seen[name]
    scheduler = f"kube-scheduler={urls['kube-scheduler']}"
    rows = look(f"{scheduler},ca={deployed.ca},token={low}", f"kube-controller-manager={urls[names[1]]},trust=loopback")
    assert all(rows[name]["cores"] is not None for name in names)
    refused = look(f"{scheduler},certificate={certificate},key={key}")["kube-scheduler"]["missing"]
    assert "403" in refused and "nonResourceURLs" in refused, (
        "a certificate is believed, and its user has no such right"
    )
    strange = look(f"{scheduler},ca={deployed.folder}/front-proxy-ca.crt")["kube-scheduler"]["missing"]
    assert "is not trusted" in strange and "trust=loopback" in strange


def answers(plane: Plane, port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


# ---- removal


@pytest.mark.parametrize("order", ["rbac first", "rbac last"])
def test_deleting_the_deployment_leaves_nothing(
    deployed: WholePlane, service: Callable[..., Service], order: str
) -> None:
    """`kubectl delete -k` deletes the account and its rights before the Deployment: the service cannot delete anything
    any more when it ends. The level and the Lease stayed."""
    if "kube-controller-manager" not in deployed.ports:
        deployed.start_controller_manager()
    one = service()
    with traffic(deployed):
        one.wrote()
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/carico-plane"
    rbac = ["/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/carico-plane", role]
    if order == "rbac first":
        for path in rbac:
            deployed.admin.delete(path)
        assert one.end() == 0
        wait_for(lambda: missing(deployed, reserve(deployed)), "the garbage collector deletes the level", 30)
    else:
        assert one.end() == 0
        assert missing(deployed, reserve(deployed)), "the service gives its seats back"
        for path in rbac:
            deployed.admin.delete(path)
    wait_for(lambda: missing(deployed, LEASE), "the Lease goes, too", 30)


CARICO = "/api/v1/namespaces/carico"
POD = f"{CARICO}/pods/carico-plane"


class AccountService(Service):
    """With a token of its service account, as in a Pod: it ends when the account does."""

    @property
    def arguments(self) -> list[str]:
        token = self.folder / "token"
        if not token.exists():
            asked = self.plane.admin.post(f"{CARICO}/serviceaccounts/carico-plane/token", {"spec": {}})
            token.write_text(asked["status"]["token"])
        config = self.plane.kubeconfig(tokenFile=str(token))
        return ["--config", str(self.folder / "config.toml"), "--kubeconfig", str(config)]


def add_pod_of_the_service(plane: WholePlane) -> None:
    plane.admin.add_node("one")
    pod = {
        "metadata": {"name": "carico-plane"},
        "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "c"}], "serviceAccountName": "carico-plane"},
    }
    plane.admin.post(f"{CARICO}/pods", pod)


def end_as_the_kubelet_does(plane: WholePlane, one: Service, killed: bool) -> None:
    """The Pod is deleted: its process gets SIGTERM, or is dead already, and then the Pod goes."""
    wait_for(lambda: plane.admin.get(POD)["metadata"].get("deletionTimestamp"), "the Pod is to end", 30)
    if not killed:
        assert one.end() == 0
        assert missing(plane, reserve(plane)), "the service gives its seats back: its account is still there"
    plane.admin.delete(f"{POD}?gracePeriodSeconds=0")


def traces(plane: WholePlane) -> list[str]:
    """What stands on the server of all that deploy/plane and the service create."""
    group, admission = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
    paths = [
        CARICO,
        reserve(plane),
        f"{group}/clusterroles/carico-plane",
        f"{group}/clusterrolebindings/carico-plane",
        f"{admission}/validatingadmissionpolicies/carico-own-level",
        f"{admission}/validatingadmissionpolicybindings/carico-own-level",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/carico-plane",
    ]
    return [path for path in paths if not missing(plane, path)]


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_deleting_the_namespace_first_leaves_nothing(deployed: WholePlane, tmp_path: Path, killed: bool) -> None:
    """The API server deletes the Pods of a namespace before its service accounts (1.33 and newer), so a service that
    ends takes its seats back. Those of one that was killed go with the ClusterRole, by the `kubectl delete -k` that
    takes the objects that are in no namespace."""
    if "kube-controller-manager" not in deployed.ports:
        deployed.start_controller_manager()
    add_pod_of_the_service(deployed)
    one = AccountService(deployed, tmp_path / "one")
    one.start()
    with traffic(deployed):
        one.wrote()
    if killed:
        one.end(signal.SIGKILL)
    deployed.admin.delete(CARICO)
    end_as_the_kubelet_does(deployed, one, killed)
    wait_for(lambda: missing(deployed, CARICO), "the namespace is gone", 60)
    assert missing(deployed, reserve(deployed)) is not killed
    removal = [f"--filename={path}" for path in sorted((TREE / "deploy/plane").glob("[0-9]*.yaml"))]
    kubectl = [str(binaries() / "kubectl"), "--kubeconfig", str(deployed.kubeconfig("admin-token"))]
    subprocess.run([*kubectl, "delete", "--ignore-not-found", *removal], check=True, capture_output=True)
    try:
        wait_for(lambda: not traces(deployed), "nothing stays", 60)
    finally:
        deployed.admin.delete("/api/v1/nodes/one")


async def test_a_version_that_is_gone_says_nothing_of_the_object(deployed: WholePlane) -> None:
    async with KubeClient(from_kubeconfig(deployed.kubeconfig("admin-token"))) as client:
        ours = Reserve(client)
        assert await ours.write(500, None)
        ours._version = "v1beta3"  # of the server before it was upgraded
        assert await ours.remove() == f"{NAME} (500 shares) is taken back"
        assert missing(deployed, reserve(deployed))


# ---- several API servers


class Balancer:
    """TCP, round robin."""

    def __init__(self, ports: list[int]) -> None:
        self._ports, self._next = ports, 0
        self.server: asyncio.Server

    async def start(self) -> int:
        self.server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return int(self.server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._ports[self._next % len(self._ports)]
        self._next += 1
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1 << 16):
                writer.write(piece)
                await writer.drain()
        except OSError:
            return
        finally:
            writer.close()


async def test_two_api_servers_behind_a_balancer(deployed: WholePlane) -> None:
    """Another one answers each time. Two thirds of the windows were thrown away."""
    first = deployed.port
    await asyncio.to_thread(deployed.start_second)
    balancer = Balancer([first, deployed.port])
    port = await balancer.start()
    access = from_kubeconfig(deployed.kubeconfig("plane-token"))
    config = json.loads(deployed.kubeconfig("plane-token").read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = deployed.folder / "balanced.json"
    path.write_text(json.dumps(config))
    access = from_kubeconfig(path)
    usable, looks = 0, 21
    async with KubeClient(access) as client:
        observer = Observer(client, PlaneSettings(cores=8))
        for n in range(looks):
            seen = await observer.observe()
            usable += n > 0 and seen.diagnosis.components[0].cores is not None
            await asyncio.sleep(0.2)
        assert seen.diagnosis.servers == 2
        await observer.aclose()
    balancer.server.close()
    assert usable >= 0.95 * (looks - 1), f"{usable} of {looks - 1}"
