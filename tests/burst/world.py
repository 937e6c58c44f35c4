"""Movers on the two clusters of model.py: driven request by request, killed anywhere, and judged."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from carico_agent.burst.objects import FINALIZER, CopyJob, copy_job, home_job
from carico_agent.burst.protocol import UNREAD, Intent, Suspends, Unread
from carico_agent.burst.steps import MoveOutcome, Request, Route, ServerAnswer, collect, reconcile
from tests.burst.model import SEAL, Cluster, Object

ROUTE = Route("home-id", "cloud", cluster="cloud-id", seal=SEAL)


@dataclass
class Mover:
    """One run of the generator, stopped before its next request."""

    steps: Generator[Request, ServerAnswer, Any]
    request: Request | None = None
    outcome: MoveOutcome | None = None

    def __post_init__(self) -> None:
        self._advance(lambda: next(self.steps))

    def answer(self, answer: ServerAnswer) -> None:
        self._advance(lambda: self.steps.send(answer))

    def _advance(self, go: Any) -> None:
        try:
            self.request = go()
        except StopIteration as end:
            self.request, self.outcome = None, end.value


@dataclass
class World:
    """Home, target, and what has completed."""

    home: Cluster = field(default_factory=lambda: Cluster("home"))
    cloud: Cluster = field(default_factory=lambda: Cluster("cloud"))
    succeeded: dict[str, int] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    @property
    def route(self) -> Route:
        return replace(ROUTE, suspends=Suspends(self.home.suspends, self.cloud.suspends))

    @property
    def clusters(self) -> tuple[Cluster, Cluster]:
        return self.home, self.cloud

    def apply(self, request: Request) -> ServerAnswer:
        self.requests.append(request)
        return (self.home if request.home else self.cloud).handle(request)

    def run(self, mover: Mover, most: int = 1000) -> MoveOutcome | None:
        """Up to `most` requests."""
        for _ in range(most):
            if mover.request is None:
                return mover.outcome
            mover.answer(self.apply(mover.request))
        return None

    def mover(self, key: str, wish: Intent, version: int = -1, copy_version: int = 0) -> Mover | None:
        """A mover that has seen the home Job as it was `version` writes ago, and the copy (0: not at all)."""
        job, copy = self.home.jobs.get(key), self.cloud.jobs.get(key)
        if job is None:
            return None
        past = self.home.history[job["metadata"]["uid"]]
        known: CopyJob | Unread = UNREAD
        if copy is not None and copy_version:
            copies = self.cloud.history[copy["metadata"]["uid"]]
            known = copy_job(copies[max(-len(copies), copy_version)])
        return Mover(reconcile(home_job(past[max(-len(past), version)], SEAL), wish, self.route, known))

    def run_or_die(self, key: str, wish: Intent, left: int, lost: bool) -> int:
        """One call of the mover, which dies when it has sent `left` requests. `lost`: its next request is applied
        and the answer never seen; else it is never sent. Returns how many are left; -1: it died.
        """
        mover = self.mover(key, wish)
        while mover is not None and mover.request is not None:
            if left == 0:
                left = -1
                if lost:
                    self.apply(mover.request)
                break
            left -= 1
            mover.answer(self.apply(mover.request))
        return left

    def work_on(self) -> None:
        """Every kubelet and controller, once."""
        for cluster in self.clusters:
            for name in list(cluster.pods):
                cluster.kubelet(name)
            for uid in list(cluster.history):
                cluster.sync(uid, 1000)

    def collector(self, key: str) -> Mover | None:
        job = self.cloud.jobs.get(key)
        if job is None or not copy_job(job).origin:
            return None
        return Mover(collect(copy_job(job), "default", self.route))

    def finish(self, cluster: Cluster, pod: str, well: bool = True) -> None:
        origin = cluster.origin(pod)
        if cluster.finish(pod, well) and well:
            self.succeeded[origin] = self.succeeded.get(origin, 0) + 1

    # ---- everybody acts, fairly

    def run_until_quiet(self, wish: Intent = Intent.KEEP, rounds: int = 60, work: bool = True) -> None:
        """Until nothing changes: all parts act in turn. `work`: Pods get nodes, run and succeed."""
        for _ in range(rounds):
            before = (self.home.version, self.cloud.version, len(self.home.pods), len(self.cloud.pods))
            for cluster in self.clusters:
                self._everybody(cluster, work)
            for key in list(self.home.jobs):
                if (mover := self.mover(key, wish)) is not None:
                    self.run(mover)
            for key in list(self.cloud.jobs):
                if (gone := self.collector(key)) is not None:
                    self.run(gone)
            now = (self.home.version, self.cloud.version, len(self.home.pods), len(self.cloud.pods))
            if before == now and not any(cluster.running for cluster in self.clusters):
                return

    def _everybody(self, cluster: Cluster, work: bool) -> None:
        cluster.collect_garbage()
        for name in list(cluster.pods):
            cluster.kubelet(name)
        for uid in list(cluster.history):
            cluster.sync(uid, 1000)
        for name in list(cluster.pods) if work else ():
            cluster.bind(name)
            cluster.start(name)
            self.check()
            if not cluster.pods[name]["metadata"].get("deletionTimestamp"):
                self.finish(cluster, name)
        for uid in list(cluster.history):
            cluster.sync(uid, 1000)

    # ---- the judge

    def running(self) -> Iterator[tuple[str, str]]:
        """(origin, cluster) of everything that runs."""
        for cluster in self.clusters:
            for pod in cluster.running:
                yield cluster.origin(pod), cluster.name

    def check(self) -> None:
        """No origin runs in two clusters."""
        where: dict[str, set[str]] = {}
        for origin, cluster in self.running():
            where.setdefault(origin, set()).add(cluster)
        twice = {origin: clusters for origin, clusters in where.items() if len(clusters) > 1}
        assert not twice, f"running twice: {twice}"

    def check_end(self, completions: dict[str, int]) -> None:
        """Every Job has completed, and as often as it should; nothing is left of any move."""
        for key, wanted in completions.items():
            job: Object = self.home.jobs[key]
            uid = job["metadata"]["uid"]
            done = [one["type"] for one in job["status"].get("conditions") or () if one["status"] == "True"]
            assert done in (["Complete"], ["SuccessCriteriaMet", "Complete"]), f"{key} is {done}: {job}"
            assert self.succeeded.get(uid, 0) == wanted, f"{key} succeeded {self.succeeded.get(uid, 0)} times"
            assert FINALIZER not in (job["metadata"].get("finalizers") or ())
        assert not self.cloud.jobs, f"left at the target: {list(self.cloud.jobs)}"
