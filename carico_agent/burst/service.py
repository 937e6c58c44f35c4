"""The rounds of `carico burst`: look at both sides, plan, move, order nodes, remove idle ones."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import isfinite

from carico_agent.burst.catalogue import ARCH
from carico_agent.burst.choice import REGIONS, Data, JobNeeds
from carico_agent.burst.cluster import ClusterView, PodSeen, asked_by, take
from carico_agent.burst.live_status import patch_of, seen_there
from carico_agent.burst.models import Models
from carico_agent.burst.mover import IN_FLIGHT, Mover
from carico_agent.burst.objects import ORIGIN, HomeJob, Object, State
from carico_agent.burst.ordering import start_patch, waits_for, why_waits
from carico_agent.burst.overflow import NodeRoom, Waiting, workload_of_job
from carico_agent.burst.planner import BurstPolicy, Candidate, Growth, Plan, TargetState, plan
from carico_agent.burst.protocol import RECALLED, Intent
from carico_agent.burst.provisioner import ProvisionerError
from carico_agent.burst.site import Site
from carico_agent.burst.steps import jobs_path
from carico_agent.burst.target import Key
from carico_agent.burst.waits import Arrivals, JobDurations
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.net.times import parse_rfc3339

log = logging.getLogger(__name__)

OUT_OF = ("OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage")
"""Reasons of Pods that a kubelet refused because kube-scheduler was faster than the node's count. Nothing ran."""


GONE_S = 20.0
"""A target that is silent for this long is asked for at its provisioner [s]."""


LOOK_S = 10.0
"""Between two looks at the Secret of a target's kubeconfig [s]."""
LATE_S = 60.0
"""A node that the provisioner calls ready is looked for this much longer than it takes to boot [s]."""


DataOf = Callable[[HomeJob], tuple[Data, ...]]
"""What a Job reads; raises ValueError with the reason why that is not known."""


class BurstService:
    """`round` once per period. `acts` is false for `plan` and `status`, and while another one leads."""

    def __init__(
        self,
        mover: Mover,
        home: ClusterView,
        sites: dict[str, Site],
        policy: BurstPolicy,
        idle_delete_s: float,
        data: DataOf,
    ) -> None:
        self.mover, self.home, self.sites = mover, home, sites
        self.policy, self._idle_delete_s, self._data = policy, idle_delete_s, data
        self.history, self.arrivals = JobDurations(), Arrivals()
        self.plan = Plan()
        self._known: set[str] = set()
        self._sent: set[str] = set()

    # ---- one round

    async def round(self, acts: bool) -> None:
        now_s, wall_s = time.monotonic(), time.time()
        await self.find_ways(now_s)
        self._count_arrivals(now_s)
        self.plan = self._plan(now_s, wall_s)
        self.mover.reasons.update(self.plan.reasons)
        self.mover.reasons.update(self._ordered())
        if not acts:
            return
        await self._start_ordered()
        for key, to in self.plan.moves.items():
            self.mover.wish(key, Intent.MOVE, to)
        for site in self.sites.values():
            if site.provisioner is not None:
                await self._size(site, now_s)
            if site.target.copies:
                await self._replace_refused(site)
                await self._mirror_live(site)

    def _ordered(self) -> dict[Key, str]:
        """Jobs that wait for others, and why."""
        jobs = self.mover.jobs
        return {key: why for key, job in jobs.items() if waits_for(job) and (why := why_waits(job, jobs))}

    async def _start_ordered(self) -> None:
        """Start the Jobs whose predecessors are complete."""
        jobs = self.mover.jobs
        for key, job in list(jobs.items()):
            if not waits_for(job) or why_waits(job, jobs):
                continue
            try:
                await self.mover.home.patch(jobs_path(*key), start_patch(job))
                self.mover.reasons.pop(key, None)
            except KubeError as error:  # the next round looks again
                self.mover.home_health.bad("ordered Jobs", error)

    async def find_ways(self, now_s: float) -> None:
        """The kubeconfigs of clusters that are made on demand, out of their Secrets: also while another process leads,
        and when an operator or another leader has rotated one."""
        for site in self.sites.values():
            if not site.on_demand or site.provisioner is None or now_s < site.looked_s + LOOK_S:
                continue
            try:
                await site.provisioner.load()
                site.use_kubeconfig()
                if site.looked_s < 0:
                    site.ordered_s = now_s  # an earlier leader may have ordered nodes that still boot
                site.looked_s = now_s
            except (ProvisionerError, KubeError) as error:
                log.warning("%s: %s", site.target.name, error)

    def _plan(self, now_s: float, wall_s: float) -> Plan:
        pods = self.home.of_jobs()
        candidates, made = [], Plan()
        for key, job in sorted(self.mover.jobs.items(), key=lambda item: _created(item[1])):
            try:
                candidate = self._candidate(key, job, pods.get(job.uid, []), wall_s)
            except ValueError as error:
                made.reasons[key] = str(error)
                continue
            if candidate is not None:
                candidates.append(candidate)
        running = [pod for own in pods.values() for pod in own if pod.node]
        states = [self._state(site, now_s, wall_s) for site in self.sites.values()]
        horizon_s = max((site.boot_s for site in self.sites.values()), default=0.0)
        coming = self.arrivals.expected(now_s, horizon_s)
        expected = [(in_s, self.history.duration_s(workload)) for in_s, workload in coming]
        rooms, empty = self.home.room(wall_s), self.home.empty()
        thought = plan(candidates, rooms, self._left(running, wall_s), states, self.policy, expected, empty)
        thought.reasons.update(made.reasons)
        return thought

    def _candidate(self, key: Key, job: HomeJob, pods: list[PodSeen], wall_s: float) -> Candidate | None:
        ledger = job.ledger
        if ledger.state != State.HOME or job.finished or job.deleting or self.mover.wished(key) or not pods:
            return None
        if any(pod.node for pod in pods) or ledger.note.startswith(RECALLED):
            return None
        since = [pod.unschedulable_since_s for pod in pods]
        waited_s = min((wall_s - at_s if at_s is not None else 0.0) for at_s in since)
        workload = workload_of_job(job.whole)
        asked = asked_by(job.whole["spec"]["template"], key[0])
        waiting = Waiting(key, workload, asked, max(0.0, waited_s), len(pods), pods[0].asked)
        annotations = job.whole["metadata"].get("annotations") or {}
        regions = tuple(filter(None, annotations.get(REGIONS, "").replace(" ", "").split(",")))
        needs = JobNeeds(self.history.duration_s(workload), self._data(job), regions)
        refusals = {name: why for name in self.sites if (why := self.mover.refusal(job.uid, name))}
        return Candidate(waiting, needs, refusals)

    def _left(self, running: Sequence[PodSeen], wall_s: float) -> list[float]:
        """How long the Pods of Jobs that have a node will still run."""
        workloads = {job.uid: workload_of_job(job.whole) for job in self.mover.jobs.values()}
        return [self.history.left_s(workloads.get(pod.job, ""), max(0.0, wall_s - pod.started_s)) for pod in running]

    def _state(self, site: Site, now_s: float, wall_s: float) -> TargetState:
        rooms = site.view.room(wall_s) if site.target.silent_since_s is None else []
        self._reserve(site, rooms)
        running = [pod for pod in site.view.pods.values() if pod.node and pod.job]
        return TargetState(
            site.target.name,
            site.region,
            site.price_per_h,
            rooms,
            self._left(running, wall_s),
            self._growths(site, now_s),
            site.autoscales_s,
            site.image_s,
            site.data_s_per_gb,
            site.obstacle(now_s),
        )

    def rooms(self) -> dict[str, list[NodeRoom]]:
        """What is free at every target now."""
        return {name: site.view.room(time.time()) for name, site in self.sites.items()}

    def _reserve(self, site: Site, rooms: list[NodeRoom]) -> None:
        """Room for Jobs on their way: wished or away, and not bound there yet."""
        bound = {pod.job for pod in site.view.pods.values() if pod.node}
        for key, job in self.mover.jobs.items():
            going = job.ledger.state in IN_FLIGHT and job.ledger.to == site.target.name
            if not going and self.mover.wished_target(key) != site.target.name:
                continue
            copy = site.target.copies.get(key)
            if job.finished or (copy is not None and (copy.uid in bound or copy.finished)):
                continue
            workload, asked = workload_of_job(job.whole), asked_by(job.whole["spec"]["template"], key[0])
            for _ in range(max(1, job.ledger.parallelism if going else job.parallelism)):
                if not take(rooms, workload, asked):
                    break  # nothing is left to reserve; a user may have asked for 2 147 483 647 Pods

    def _growths(self, site: Site, now_s: float) -> list[Growth]:
        provisioner = site.provisioner
        if provisioner is None:
            return []
        order = provisioner.order
        ordered = order.nodes if order.verb == "scale" else 0
        more = max(0, site.max_nodes - max(ordered, provisioner.report.nodes))
        more = 0 if provisioner.trouble or (order.verb == "delete" and order.open) else more
        in_s = max(5.0, site.boot_s - (now_s - site.ordered_s))
        machines = site.machines or {"": (site.new_node, None)}
        made = []
        for machine, (node, price_per_h) in machines.items():
            missing = self._missing(site, machine, now_s)
            made.append(Growth(node, site.boot_s, more, [in_s] * missing, machine, price_per_h))
        return made

    def _missing(self, site: Site, machine: str, now_s: float) -> int:
        """Nodes of this machine that were ordered and that the target does not show yet."""
        provisioner = site.provisioner
        assert provisioner is not None
        order = provisioner.order
        if order.verb != "scale" or not (order.open or now_s - site.ordered_s < 2 * site.boot_s + LATE_S):
            return 0
        wanted = order.machines.get(machine, 0) if order.machines else order.nodes
        there = [node for node in site.view.nodes.values() if node.open]
        return max(0, wanted - sum(1 for node in there if not machine or site.machine_of(node.name) == machine))

    # ---- nodes

    async def _size(self, site: Site, now_s: float) -> None:
        provisioner = site.provisioner
        assert provisioner is not None
        try:
            if not provisioner.loaded:
                await provisioner.load()
            site.use_kubeconfig()
            busy = site.view.busy()
            unsure = provisioner.report.state in ("working", "unknown")
            if provisioner.order.open or provisioner.trouble or unsure:
                await provisioner.poll(busy)
                site.use_kubeconfig()
            elif self.plan.add.get(site.target.name):
                await self._grow(site, now_s)
            elif (fewer := self._fewer(site, busy, now_s)) is not None:
                await provisioner.ask("scale" if fewer else "delete", fewer, site.kept_machines(busy) if fewer else {})
            elif provisioner.report.nodes < site.min_nodes and provisioner.report.state != "failed":
                await provisioner.ask("scale", site.min_nodes, site.kept_machines(busy))
                site.ordered_s = now_s
            await self._forget_if_gone(site, now_s)
        except (ProvisionerError, KubeError) as error:
            log.warning("%s: %s", site.target.name, error)

    async def provision(self, waiting: Sequence[Candidate], sent: set[str], now_s: float) -> None:
        """For Jobs that another engine sends: order nodes for those that wait, remove nodes that none uses. `sent`: the
        targets to which it sends some now."""
        states = [self._state(site, now_s, time.time()) for site in self.sites.values()]
        self.plan, self._sent = plan(waiting, [], [], states, self.policy, (), []), sent
        for site in self.sites.values():
            if site.provisioner is not None:
                await self._size(site, now_s)

    async def _grow(self, site: Site, now_s: float) -> None:
        """Order the nodes of the plan beside those that are there."""
        provisioner, name = site.provisioner, site.target.name
        assert provisioner is not None
        ready = provisioner.report.state == "ready"
        have = provisioner.report.nodes if ready else 0
        machines: dict[str, int] = {}
        if site.machines:
            there = provisioner.report.machines or provisioner.order.machines
            machines = {key: count for key, count in there.items() if count and ready}
            for key, more in self.plan.machines[name].items():
                machines[key] = machines.get(key, 0) + more
            machines = _at_most(machines, site.max_nodes)
        nodes = sum(machines.values()) if machines else min(site.max_nodes, have + self.plan.add[name])
        await provisioner.ask("scale", nodes, machines, pending_sum(self.plan.pending.get(name, ())))
        site.ordered_s = now_s

    async def _forget_if_gone(self, site: Site, now_s: float) -> None:
        """A target that does not answer and whose provisioner, asked now, proves that nothing of it exists any more:
        only then do its Jobs start at home again by themselves."""
        provisioner, target = site.provisioner, site.target
        assert provisioner is not None
        away = [
            key
            for key, job in self.mover.jobs.items()
            if job.ledger.to == target.name and job.ledger.state in IN_FLIGHT
        ]
        if (
            not away
            or target.silent_since_s is None
            or now_s - target.silent_since_s < GONE_S
            or provisioner.order.open
        ):
            return
        if (await provisioner.poll()).state == "absent":
            for key in away:
                self.mover.wish(key, Intent.FORGET, target.name)

    def _fewer(self, site: Site, busy: set[str], now_s: float) -> int | None:
        """The number of nodes to shrink to, or None: nodes that no Job uses, after `idle_delete_s`."""
        provisioner = site.provisioner
        assert provisioner is not None
        name = site.target.name
        in_flight = any(
            (job.ledger.state in IN_FLIGHT and job.ledger.to == name) or self.mover.wished_target(key) == name
            for key, job in self.mover.jobs.items()
        )
        in_flight = in_flight or name in self._sent
        nodes = provisioner.report.nodes if provisioner.report.state == "ready" else 0
        return site.idle.fewer(now_s, nodes, len(busy), in_flight, self._idle_delete_s, site.min_nodes)

    async def _replace_refused(self, site: Site) -> None:
        """Pods of our copies that a kubelet refused for room are deleted, so that the Job controller makes new ones
        and does not count them as failures. Everything else that failed is left as it is."""
        selector = {"labelSelector": ORIGIN, "fieldSelector": "status.phase=Failed"}
        try:
            found = await site.target.client.get("/api/v1/pods", selector)
            for pod in found.get("items") or ():
                if str((pod.get("status") or {}).get("reason")) in OUT_OF:
                    meta = pod["metadata"]
                    await site.target.client.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}")
        except KubeError as error:
            site.target.health.bad("refused Pods", error)

    async def _mirror_live(self, site: Site) -> None:
        """What copies do, onto their Jobs at home."""
        pods = site.view.of_jobs()
        for key, copy in site.target.copies.items():
            job = self.mover.jobs.get(key)
            if job is None or job.ledger.state != State.AWAY or job.ledger.copy != copy.uid or job.deleting:
                continue
            body = patch_of(job, seen_there(job, copy, pods.get(copy.uid, [])))
            if body is None:
                continue
            try:
                await self.mover.home.patch(jobs_path(*key), body)
            except KubeError as error:
                self.mover.home_health.bad("live status", error)
                return

    # ---- learning

    def _count_arrivals(self, now_s: float) -> None:
        """New Jobs, and how long Pods ran that have ended on either side. Jobs that had ended before we came: by
        their own times, which include their waiting."""
        for job in self.mover.jobs.values():
            if job.uid not in self._known and not job.finished:
                self.arrivals.came(workload_of_job(job.whole), now_s)
            elif job.uid not in self._known:
                self._learn_from_status(job)
        self._known = {job.uid for job in self.mover.jobs.values()}
        workloads = {job.uid: workload_of_job(job.whole) for job in self.mover.jobs.values()}
        for site in self.sites.values():
            workloads |= {copy.uid: workloads.get(copy.origin, "") for copy in site.target.copies.values()}
        for view in [self.home, *(site.view for site in self.sites.values())]:
            while view.ended:
                uid, took_s = view.ended.popleft()
                if workload := workloads.get(uid):
                    self.history.finished(workload, took_s)

    def _learn_from_status(self, job: HomeJob) -> None:
        status = job.whole.get("status") or {}
        try:
            took_s = parse_rfc3339(status["completionTime"]) - parse_rfc3339(status["startTime"])
        except (KeyError, ValueError, TypeError):
            return
        if isfinite(took_s) and took_s >= 0:
            self.history.finished(workload_of_job(job.whole), took_s)


def pending_sum(waiting: Iterable[Waiting]) -> Object:
    """What Jobs ask for together, for a provisioner.

    >>> from carico_agent.burst.overflow import Asked
    >>> gpu = Waiting(("d", "a"), "k", Asked(2.0, 1e9, {"nvidia.com/gpu": 1.0}), 40.0, pods=2)
    >>> pending_sum([gpu, Waiting(("d", "b"), "k", Asked(1.0), 40.0)])
    {'jobs': 2, 'pods': 3, 'requests': {'cpu': 5.0, 'memory': 2000000000.0, 'nvidia.com/gpu': 2.0}, 'architectures': []}
    """
    jobs, total = list(waiting), Counter[str]()
    architectures: set[str] = set()
    for job in jobs:
        total.update({name: amount * job.pods for name, amount in job.asked.amounts()})
        architectures |= {value for key, value in job.asked.rules.selector if key == ARCH}
    pods = sum(job.pods for job in jobs)
    return {"jobs": len(jobs), "pods": pods, "requests": dict(total), "architectures": sorted(architectures)}


def _at_most(machines: dict[str, int], most: int) -> dict[str, int]:
    """As many nodes as allowed, the first machines first."""
    kept: dict[str, int] = {}
    for name, count in machines.items():
        kept[name] = min(count, most - sum(kept.values()))
    return {name: count for name, count in kept.items() if count > 0}


def _created(job: HomeJob) -> tuple[str, str]:
    return str(job.whole["metadata"].get("creationTimestamp", "")), job.name


async def rounds(service: BurstService, leads: Callable[[], bool], period_s: float, models: Models) -> None:
    """Runs until it is cancelled. The command that knows the newest models runs beside the event loop."""
    while True:
        await asyncio.to_thread(models.prepare, list(service.mover.jobs.values()))
        await service.round(leads())
        await asyncio.sleep(period_s)
