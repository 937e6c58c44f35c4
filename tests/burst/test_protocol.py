"""Any order of anything: movers that die, lose answers and know old versions, controllers with old caches, schedulers,
kubelets, people who delete Pods and Jobs. No Job ever runs in two clusters, and none is lost."""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from carico_agent.burst.protocol import Intent
from carico_agent.burst.steps import Request
from tests.burst.model import Cluster, job
from tests.burst.world import Mover, World

SIDES = st.sampled_from(["home", "cloud"])
NUMBERS = st.integers(0, 7)


class Moves(RuleBasedStateMachine):
    """Two movers, one or two Jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.movers: dict[int, Mover | None] = {0: None, 1: None}
        self.completions: dict[str, int] = {}
        self.deleted: set[str] = set()

    @initialize(
        sizes=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2)), min_size=1, max_size=2),
        suspends=st.tuples(st.booleans(), st.booleans()),
    )
    def jobs(self, sizes: list[tuple[int, int]], suspends: tuple[bool, bool]) -> None:
        self.world.home.suspends, self.world.cloud.suspends = suspends
        for number, (parallelism, completions) in enumerate(sizes):
            body = job(f"j{number}", parallelism, completions)
            self.world.home.handle(Request(True, "POST", "/apis/batch/v1/namespaces/default/jobs", body))
            self.completions[f"default/j{number}"] = completions
        for uid in list(self.world.home.history):
            self.world.home.sync(uid, 10)

    def _cluster(self, side: str) -> Cluster:
        return self.world.home if side == "home" else self.world.cloud

    def _pod(self, side: str, number: int) -> str | None:
        names = sorted(self._cluster(side).pods)
        return names[number % len(names)] if names else None

    # ---- movers

    @rule(
        who=st.integers(0, 1),
        number=st.integers(0, 1),
        wish=st.sampled_from(list(Intent)),
        old=st.integers(1, 4),
        old_copy=st.integers(0, 3),
    )
    def begin(self, who: int, number: int, wish: Intent, old: int, old_copy: int) -> None:
        """A mover (again): what was under way is dropped. It may know old versions. Nobody is fenced here."""
        wish = Intent.MOVE if wish == Intent.FORGET else wish
        self.movers[who] = self.world.mover(f"default/j{number}", wish, -old, -old_copy)

    @rule(who=st.integers(0, 1), count=st.integers(1, 8))
    def go_on(self, who: int, count: int) -> None:
        if (mover := self.movers[who]) is not None:
            self.world.run(mover, count)

    @rule(who=st.integers(0, 1))
    def lose_the_answer(self, who: int) -> None:
        mover = self.movers[who]
        if mover is not None and mover.request is not None:
            self.world.apply(mover.request)
        self.movers[who] = None

    @rule(number=st.integers(0, 1))
    def collect(self, number: int) -> None:
        if (mover := self.world.collector(f"default/j{number}")) is not None:
            self.world.run(mover)

    # ---- everybody else

    @rule(side=SIDES, number=NUMBERS, forward=st.integers(0, 5))
    def controller(self, side: str, number: int, forward: int) -> None:
        uids = sorted(self._cluster(side).history)
        if uids:
            self._cluster(side).sync(uids[number % len(uids)], forward)

    @rule(side=SIDES, number=NUMBERS)
    def bind_and_start(self, side: str, number: int) -> None:
        if pod := self._pod(side, number):
            self._cluster(side).bind(pod)
            self._cluster(side).start(pod)

    @rule(side=SIDES, number=NUMBERS)
    def succeed(self, side: str, number: int) -> None:
        """A Pod that is being deleted is killed, here: one that succeeds in its last second would have run at home
        before it runs elsewhere, as it may whenever a Pod is evicted."""
        pod = self._pod(side, number)
        if pod and not self._cluster(side).pods[pod]["metadata"].get("deletionTimestamp"):
            self.world.finish(self._cluster(side), pod)

    @rule(side=SIDES, number=NUMBERS)
    def kubelet(self, side: str, number: int) -> None:
        if pod := self._pod(side, number):
            self._cluster(side).kubelet(pod)

    @rule(side=SIDES, number=NUMBERS)
    def somebody_deletes_a_pod(self, side: str, number: int) -> None:
        pod = self._pod(side, number)
        if pod and self._cluster(side).pods[pod]["status"]["phase"] in ("Pending", "Running"):
            self._cluster(side)._end(self._cluster(side).pods[pod])

    @rule(side=SIDES)
    def garbage(self, side: str) -> None:
        self._cluster(side).collect_garbage()

    @rule(number=st.integers(0, 1))
    def delete_a_job(self, number: int) -> None:
        key = f"default/j{number}"
        if key in self.world.home.jobs and number == 1:
            path = "/apis/batch/v1/namespaces/default/jobs/" + key.partition("/")[2]
            self.world.home.handle(Request(True, "DELETE", path, {}))
            self.deleted.add(key)

    # ---- the judge

    @invariant()
    def never_twice(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        for key in self.completions:
            if key in self.world.home.jobs:
                self.world.check()
        self.world.run_until_quiet(Intent.KEEP, rounds=80)
        left = {key: wanted for key, wanted in self.completions.items() if key not in self.deleted}
        for key in self.deleted:
            assert key not in self.world.home.jobs
        self.world.check_end(left)


Moves.TestCase.settings = settings(
    max_examples=int(os.environ.get("CARICO_EXAMPLES", "100")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestMoves = Moves.TestCase
