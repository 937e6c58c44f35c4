"""What a user does by hand: look at the plan, at one Job, at its logs; move it, recall it, forget it.

Every command is one more mover beside the service, which need not run, and may.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from carico_agent.burst.daemon import (
    PROBE_TIMEOUT_S,
    BurstDaemon,
    Clients,
    clients_of,
    data_steps,
    home_access,
    models_of,
    target_settings,
)
from carico_agent.burst.job_logs import ContainerLog, LogKeeper, name_of, pods_of, read_logs
from carico_agent.burst.lacks import checks
from carico_agent.burst.link import Link, carry
from carico_agent.burst.mover import IN_FLIGHT
from carico_agent.burst.objects import HomeJob, State, home_job
from carico_agent.burst.overflow import why_none
from carico_agent.burst.protocol import Intent, Suspends
from carico_agent.burst.provisioner import read_kubeconfig
from carico_agent.burst.report import status
from carico_agent.burst.seal import Seal
from carico_agent.burst.seal_secret import read_seal
from carico_agent.burst.service import BurstService
from carico_agent.burst.steps import MoveOutcome, Route, jobs_path
from carico_agent.burst.target import identity, suspends
from carico_agent.lib.kube.access import from_text
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.settings import BurstSettings, BurstTargetSettings, Settings

MANY_EVENTS = 5


async def look(settings: Settings, max_s: float = 9.0) -> dict[str, Any]:
    """What the service would think now, without doing anything: for `plan` and `status`."""
    async with looking(settings, max_s) as service:
        return status(service)


@asynccontextmanager
async def looking(settings: Settings, max_s: float = 9.0) -> AsyncIterator[BurstService]:
    """A service after one round of thinking, which has written nothing."""
    daemon = BurstDaemon(settings)
    try:
        yield await _thought(daemon, max_s)
    finally:
        await daemon.stop()


async def _thought(daemon: BurstDaemon, max_s: float) -> BurstService:
    try:
        async with asyncio.timeout(max_s):
            service = await daemon.start(acts=False)
            while not service.home.synced:
                await asyncio.sleep(0.05)
        for site in service.sites.values():
            if site.provisioner is not None:
                await site.provisioner.load()
                site.use_kubeconfig()
        await _targets_answer(service, PROBE_TIMEOUT_S + 1.0)
        await asyncio.to_thread(daemon.models.prepare, list(service.mover.jobs.values()))
        await service.round(acts=False)
    except TimeoutError as error:
        raise KubeError(f"{daemon.clients.home.access.server} does not answer within {max_s:g} s") from error
    return service


async def _targets_answer(service: BurstService, max_s: float) -> None:
    """Until every target is known or silent."""
    deadline_s = asyncio.get_running_loop().time() + max_s
    while asyncio.get_running_loop().time() < deadline_s:
        sites = service.sites.values()
        if all(site.target.silent_since_s is not None or (site.target.known and site.view.synced) for site in sites):
            return
        await asyncio.sleep(0.05)


@dataclass
class Hand:
    """One Job, found at home, and the ways to all targets."""

    own: BurstSettings
    targets: dict[str, BurstTargetSettings]
    clients: Clients
    seal: Seal
    job: HomeJob

    async def route(self, to: str, asks_target: bool) -> Route:
        """The way to a target. `asks_target`: false where it may be gone."""
        if to not in self.targets:
            raise LookupError(f"burst.targets has no {to}; it has {', '.join(self.targets) or 'none'}")
        home, one = self.clients.home, self.targets[to]
        by_suspend, cluster = Suspends(suspends(await home.get("/version"))), ""
        if asks_target:
            there = self.clients.targets[to][0]
            by_suspend = replace(by_suspend, target=suspends(await there.get("/version")))
            cluster = await identity(there)
        return Route(
            await identity(home),
            to,
            by_suspend,
            dict(one.namespaces),
            cluster,
            seal=self.seal,
            homes=self.own.namespaces,
            host_paths=one.host_paths,
            steps=data_steps(self.own),
            copy=one.copy,
        )

    async def located(self, route: Route) -> Route:
        """The same way, with the place of the Job's data; raises ValueError while that is not known."""
        return replace(route, data=await asyncio.to_thread(models_of(self.own).now, self.job))

    async def enter(self, to: str) -> None:
        """Take the kubeconfig that a provisioner handed back."""
        if to not in self.targets or self.targets[to].kubeconfig:
            return
        text = await read_kubeconfig(self.clients.home, self.own.lease_namespace, to)
        for client in self.clients.targets[to] if text else ():
            client.use(from_text(text, f"kubeconfig of {to}"))


@asynccontextmanager
async def hand_on(settings: Settings, namespace: str, name: str) -> AsyncIterator[Hand | None]:
    """None when there is no such Job."""
    own = settings.burst
    targets = target_settings(own)
    clients = clients_of(own, targets)
    path = jobs_path(namespace, name)
    try:
        seal = await read_seal(clients.home, own.lease_namespace) or Seal.new()
        try:
            found = await clients.home.get(path)
        except Refused as refused:
            if not refused.says_absent(path):
                raise
            yield None
            return
        hand = Hand(own, targets, clients, seal, home_job(found, seal))
        await hand.enter(hand.job.ledger.to)
        yield hand
    finally:
        await clients.close()


async def bring_home(settings: Settings, namespace: str, name: str, wish: Intent) -> MoveOutcome | None:
    """Recall or forget one Job, as one more mover: the service need not run, and may. None when there is no such Job.

    A recall needs the target; forgetting does not ask it.
    """
    async with hand_on(settings, namespace, name) as hand:
        if hand is None:
            return None
        to = hand.job.ledger.to
        if not to:
            raise LookupError(f"{namespace}/{name} is at home")
        route = await hand.route(to, asks_target=wish == Intent.RECALL)
        return await _carried(hand, route, wish, {State.HOME, State.DONE})


async def move(settings: Settings, namespace: str, name: str, to: str) -> MoveOutcome | None:
    """Move one Job now, whatever the plan says; every check is made."""
    async with hand_on(settings, namespace, name) as hand:
        if hand is None:
            return None
        await hand.enter(to)
        route = await hand.located(await hand.route(to, asks_target=True))
        why = route.obstacle(hand.job) or "; ".join(line for line, fine in await _needs(hand, route) if not fine)
        if why:
            raise LookupError(f"{namespace}/{name} cannot go to {to}: {why}")
        return await _carried(hand, route, Intent.MOVE, {State.AWAY, State.DONE})


async def _carried(hand: Hand, route: Route, wish: Intent, until: set[State]) -> MoveOutcome | None:
    client, _, reader = hand.clients.targets[route.to]
    keeper = LogKeeper(hand.clients.home) if hand.own.keep_logs and wish != Intent.FORGET else None

    async def keep(job: HomeJob) -> bool:
        return keeper is None or keeper.has(job) or not await keeper.keep(job, reader)

    job = hand.job
    return await carry(job.namespace, job.name, wish, route, Link(hand.clients.home, client).send, until, keep)


# ---- looks at one Job


async def logs(settings: Settings, namespace: str, name: str) -> list[ContainerLog] | None:
    """What a moved Job has printed: what was kept, else at the target while its copy is there. None: no such Job.

    What was kept needs no right beside that to read ConfigMaps in the Job's namespace.
    """
    async with KubeClient(home_access(settings.burst)) as home:
        if kept := await _kept_logs(home, namespace, name):
            return kept
    async with hand_on(settings, namespace, name) as hand:
        if hand is None:
            return None
        job = hand.job
        if job.ledger.state not in IN_FLIGHT or job.ledger.to not in hand.clients.targets:
            return []
        return await read_logs(hand.clients.targets[job.ledger.to][2], job.ledger.namespace, job.uid)


async def _kept_logs(home: KubeClient, namespace: str, job: str) -> list[ContainerLog]:
    path = f"/api/v1/namespaces/{namespace}/configmaps/{name_of(job)}"
    try:
        data = (await home.get(path)).get("data") or {}
    except Refused as refused:
        if refused.says_absent(path):
            return []
        raise
    found = [(*key.rpartition("."), str(text)) for key, text in sorted(data.items())]
    return [ContainerLog(pod, container, text) for pod, _, container, text in found]


async def check(settings: Settings, namespace: str, name: str) -> dict[str, list[tuple[str, bool]]] | None:
    """For every target: what the Job needs there, and whether it is there. None: no such Job."""
    async with hand_on(settings, namespace, name) as hand:
        if hand is None:
            return None
        found: dict[str, list[tuple[str, bool]]] = {}
        for to in hand.targets:
            try:
                await hand.enter(to)
                route = await hand.located(await hand.route(to, asks_target=True))
                why = route.obstacle(hand.job)
                found[to] = [(why, False)] if why else await _needs(hand, route)
            except (KubeError, ValueError) as error:
                found[to] = [(str(error), False)]
        return found


async def _needs(hand: Hand, route: Route) -> list[tuple[str, bool]]:
    """Every object that the Job names, and whether the target has it or gets it."""
    lines = []
    async for one in checks(hand.job, route, hand.clients.home, hand.clients.targets[route.to][0]):
        how = one.why_not or f"{one.what.kind} {one.what.name}" + (" (burst copies it)" if one.copied else "")
        lines.append((how, not one.why_not))
    return lines


async def explain(settings: Settings, namespace: str, name: str) -> dict[str, Any] | None:
    """Everything about one Job: its state, why, what each target would cost or lacks, what its Pods say."""
    async with looking(settings) as service:
        key = namespace, name
        if key not in service.mover.jobs:
            return None
        seen: dict[str, Any] = next(job for job in status(service)["jobs"] if (job["namespace"], job["name"]) == key)
        job = service.mover.jobs[key]
        waiting = [pod for pod in service.home.of_jobs().get(job.uid, []) if not pod.node]
        nodes = service.home.room(0.0)
        seen["home"] = why_none(nodes, "", waiting[0].asked) if waiting else ""
        seen["options"] = [option.__dict__ for option in service.plan.options.get(key, [])]
        site = service.sites.get(job.ledger.to)
        seen["pods"] = []
        if site is not None and job.ledger.state in IN_FLIGHT and site.target.known:
            pods = await pods_of(site.target.client, job.ledger.namespace, job.uid)
            seen["pods"] = [_pod_words(pod) for pod in pods]
        return seen


def _pod_words(pod: Object) -> dict[str, Any]:
    """A Pod's phase and what keeps it.

    >>> waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    >>> _pod_words({"metadata": {"name": "a-1"}, "status": {"phase": "Pending", "conditions": [waits]}})
    {'name': 'a-1', 'node': '', 'phase': 'Pending', 'why': ['Unschedulable: 0/1 nodes']}
    """
    state = pod.get("status") or {}
    why = [
        f"{one.get('reason')}: {one.get('message', '')}"
        for one in state.get("conditions") or ()
        if one.get("status") == "False" and one.get("reason") and one.get("reason") != "PodCompleted"
    ]
    for container in [*(state.get("initContainerStatuses") or ()), *(state.get("containerStatuses") or ())]:
        for phase in ("waiting", "terminated"):
            found = (container.get("state") or {}).get(phase) or {}
            if found.get("reason") not in (None, "Completed"):
                why.append(f"{container['name']}: {found['reason']} {found.get('message', '')}".strip())
    node = (pod.get("spec") or {}).get("nodeName") or ""
    return {"name": pod["metadata"]["name"], "node": node, "phase": state.get("phase", ""), "why": why[:MANY_EVENTS]}
