"""The attacks of issue 37 on burst, between two real control planes: played as they were found, and refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from carico_agent.burst.link import Link, carry, drive
from carico_agent.burst.objects import FINALIZER, LEDGER, State, copy_job, home_job
from carico_agent.burst.protocol import Intent, Suspends
from carico_agent.burst.steps import Route, collect, jobs_path, reconcile
from carico_agent.lib.kube.access import from_kubeconfig
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from lab.support.burst_planes import BurstPlane, job_body
from lab.support.burst_process import BurstProcess
from lab.support.burst_scene import Scene
from lab.support.kube_admin import Admin, AdminError
from lab.support.waiting import wait_for
from tests.burst.model import SEAL
from tests.conftest import TREE

Planes = tuple[BurstPlane, BurstPlane]
JOBS = jobs_path("default")
ROUTE = Route("home-id", "cloud", Suspends(home=True, target=True), cluster="cloud-id", seal=SEAL)
POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/carico-burst-ledger"


def status_of(work: Callable[[], Any]) -> int:
    try:
        work()
    except AdminError as error:
        return error.status
    return 200


def tenant(plane: BurstPlane) -> Admin:
    """A user who may do everything with the Jobs of one namespace."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": "default"}],
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "tenant"},
        "rules": [{"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["*"]}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    for path, body in (
        ("/api/v1/namespaces/default/serviceaccounts", account),
        (f"{rbac}/roles", role),
        (f"{rbac}/rolebindings", binding),
    ):
        assert status_of(lambda path=path, body=body: plane.admin.post(path, body)) in (200, 409)  # type: ignore[misc]
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = plane.admin.post("/api/v1/namespaces/default/serviceaccounts/tenant/token", request)
    return Admin(plane.server, plane.ca, str(answer["status"]["token"]))


def exploit(cluster: str, namespace: str = "kube-system") -> dict[str, Any]:
    """A suspended Job whose ledger says: go on, my copy belongs to kube-system."""
    body: dict[str, Any] = job_body("exploit", suspend=True)
    ledger = {"state": "holding", "to": "cloud", "epoch": 1, "parallelism": 1, "suspend": True, "cluster": cluster}
    body["metadata"]["annotations"] = {LEDGER: json.dumps({**ledger, "namespace": namespace})}
    body["metadata"]["finalizers"] = [FINALIZER]
    spec = body["spec"]["template"]["spec"]
    spec["containers"][0]["securityContext"] = {"privileged": True}
    spec["volumes"] = [{"name": "root", "hostPath": {"path": "/"}}]
    return body


@pytest.fixture
def unguarded(planes: Planes) -> Iterator[Planes]:
    """Home without the policy: as before 1.30, or where an operator left it out."""
    planes[0].admin.delete(POLICY)
    yield planes
    planes[0].apply(TREE / "deploy/burst/home.yaml")


def test_only_burst_writes_ledgers_and_finalizers(planes: Planes) -> None:
    home, _ = planes
    user, burst = tenant(home), Admin(home.server, home.ca, "burst-token")

    def refused() -> bool:
        status = status_of(lambda: user.post(JOBS, exploit("")))
        if status == 200:
            home.admin.merge(f"{JOBS}/exploit", {"metadata": {"finalizers": None}})
            home.admin.request("DELETE", f"{JOBS}/exploit?propagationPolicy=Background")
        return status == 422

    wait_for(refused, "the policy is in force")
    user.post(JOBS, job_body("plain"))
    guard = {"metadata": {"finalizers": [FINALIZER]}}
    ledger = {"metadata": {"annotations": {LEDGER: "{}"}}}
    assert [status_of(lambda patch=patch: user.merge(f"{JOBS}/plain", patch)) for patch in (guard, ledger)] == [
        422,
        422,
    ]
    burst.merge(f"{JOBS}/plain", guard)
    burst.merge(f"{JOBS}/plain", ledger)
    unguard = {"metadata": {"finalizers": None}}
    assert status_of(lambda: user.merge(f"{JOBS}/plain", unguard)) == 422
    assert status_of(lambda: user.merge(f"{JOBS}/plain", {"metadata": {"annotations": {LEDGER: None}}})) == 422
    user.merge(f"{JOBS}/plain", {"metadata": {"labels": {"mine": "yes"}}})
    home.admin.merge(f"{JOBS}/plain", unguard)  # whoever administers the cluster may help


@pytest.mark.parametrize(
    ("cluster", "namespace"), [("", "kube-system"), ("right", "kube-system"), ("right", "default")]
)
async def test_a_forged_ledger_creates_nothing_also_without_the_policy(
    unguarded: Planes, tmp_path: Path, cluster: str, namespace: str
) -> None:
    """Issue 37, 1: this became a privileged Pod with the node's root in kube-system of the target."""
    home, cloud = unguarded
    uid = cloud.admin.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    async with Scene(unguarded):
        await asyncio.to_thread(
            wait_for,
            lambda: (
                status_of(lambda: tenant(home).post(JOBS, exploit(uid if cluster else "", namespace))) in (200, 409)
            ),
            "the policy is gone",
        )
        service = BurstProcess(tmp_path, *unguarded)
        try:
            service.start().ready()
            await asyncio.to_thread(
                wait_for, lambda: "burst did not write" in service.log.read_text(), "it says so", 60
            )
            await asyncio.sleep(3.0)
            for where in ("kube-system", "default"):
                assert cloud.admin.get(jobs_path(where))["items"] == []
        finally:
            service.kill()


def test_burst_rules_nothing_beyond_its_namespaces(planes: Planes) -> None:
    """Issue 37, 3: it rewrote the agents' configuration and the extenders' Lease."""
    home, cloud = planes
    home.apply(TREE / "deploy/base/00-namespace.yaml", TREE / "deploy/base/20-agent.yaml")
    burst, there = (Admin(plane.server, plane.ca, "burst-token") for plane in planes)
    config = home.admin.get("/api/v1/namespaces/carico/configmaps/carico-agent")
    evil = {**config, "data": {"config.toml": '[kubernetes]\nkubeconfig = "/etc/carico/evil"\n', "evil": "exec"}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/carico/leases"
    own = "/api/v1/namespaces/carico-burst"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "carico-extender"}}
    attacks: list[Callable[[], Any]] = [
        lambda: burst.request("PUT", "/api/v1/namespaces/carico/configmaps/carico-agent", evil),
        lambda: burst.post("/api/v1/namespaces/carico/configmaps", {**evil, "metadata": {"name": "more"}}),
        lambda: burst.post(leases, lease),
        lambda: burst.get("/api/v1/secrets"),
        lambda: burst.get(f"{own}/secrets"),
        lambda: burst.get(f"{own}/secrets/carico-burst-targets"),
        lambda: burst.request("PUT", f"{own}/configmaps/carico-burst", evil),
        lambda: burst.merge("/apis/batch/v1/namespaces/kube-system/jobs/x", {}),
        lambda: there.post(jobs_path("kube-system"), job_body("evil")),
        lambda: there.get("/api/v1/namespaces/kube-system/secrets/x"),
        lambda: there.delete("/api/v1/namespaces/kube-system/pods/x"),
    ]
    assert [status_of(attack) for attack in attacks] == [403] * len(attacks)
    assert status_of(lambda: there.get("/api/v1/namespaces/default")) == 200
    assert cloud.admin.get(jobs_path("kube-system"))["items"] == []


# ---- a load balancer between burst and an API server


@asynccontextmanager
async def balancer(plane: BurstPlane, folder: Path, hidden: Callable[[str, str], bool]) -> AsyncIterator[KubeClient]:
    """A client whose requests pass a load balancer, which answers the hidden ones by itself."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if hidden(request.method, request.path):
            return web.Response(status=404, text="default backend - 404")
        headers = {"Authorization": "Bearer admin-token", "Content-Type": request.headers.get("Content-Type", "")}
        url = plane.server + request.path_qs
        tls = from_kubeconfig(plane.kubeconfig("admin-token")).tls()
        async with session.request(
            request.method, url, data=await request.read(), headers=headers, ssl=tls or True
        ) as got:
            return web.Response(status=got.status, body=await got.read(), content_type=got.content_type)

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    config = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k"}}],
    }
    (folder / "balancer.json").write_text(json.dumps(config))
    client = KubeClient(from_kubeconfig(folder / "balancer.json"))
    async with aiohttp.ClientSession() as session:
        yield client
    await client.close()
    await runner.cleanup()


async def test_a_404_of_a_load_balancer_is_no_absence(planes: Planes, tmp_path: Path) -> None:
    """Issue 37, 9: the list of Pods read as empty, so Pods ran at home and at the target together; a Job that read as
    gone at home deleted its running copy."""
    async with Scene(planes) as scene:
        (name,) = await scene.submit([job_body("a", 600.0)])
        away: set[State] = {State.AWAY}
        async with balancer(scene.home, tmp_path, lambda method, path: path.endswith("/pods")) as home:
            with pytest.raises(KubeError, match="404"):
                await carry("default", name, Intent.MOVE, ROUTE, Link(home, scene.clients[1]).send, away)
        assert scene.cloud.admin.get(JOBS)["items"] == []
        await carry("default", name, Intent.MOVE, ROUTE, scene.send, away)
        job = home_job(scene.home.admin.get(f"{JOBS}/{name}"), SEAL)
        await drive(reconcile(job, Intent.KEEP, ROUTE), scene.send)
        await asyncio.to_thread(wait_for, lambda: scene.runs, "it runs at the target")
        copy = copy_job(scene.cloud.admin.get(f"{JOBS}/{name}"))
        async with balancer(scene.home, tmp_path, lambda method, path: True) as home:
            with pytest.raises(KubeError, match="404"):
                await drive(collect(copy, "default", ROUTE), Link(home, scene.clients[1]).send)
        async with balancer(scene.cloud, tmp_path, lambda method, path: True) as cloud:
            with pytest.raises(KubeError, match="404"):
                await carry("default", name, Intent.RECALL, ROUTE, Link(scene.clients[0], cloud).send, {State.HOME})
        assert [run.ended for run in scene.runs] == [""], "it still runs, once"


async def test_an_absence_that_the_server_states_is_believed(planes: Planes) -> None:
    """So that the copy of a Job that is really gone goes, too: details as 1.36 writes them."""
    async with Scene(planes) as scene:
        (name,) = await scene.submit([job_body("a", 600.0)])
        await carry("default", name, Intent.MOVE, ROUTE, scene.send, {State.AWAY})
        copy = copy_job(scene.cloud.admin.get(f"{JOBS}/{name}"))
        scene.home.admin.merge(f"{JOBS}/{name}", {"metadata": {"finalizers": None}})
        scene.home.admin.request("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")
        await asyncio.to_thread(
            wait_for, lambda: status_of(lambda: scene.home.admin.get(f"{JOBS}/{name}")) == 404, "gone"
        )
        assert await drive(collect(copy, "default", ROUTE), scene.send) == "its Job at home is gone"
        await asyncio.to_thread(wait_for, lambda: not scene.cloud.admin.get(JOBS)["items"], "the copy is gone, too")
