"""CapacityModel: usage and Pods go in, Pod-Capacity comes out. The embeddable heart of carico."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, nan, sqrt
from typing import Any

from carico_agent.core import answer
from carico_agent.core.config import ModelConfig
from carico_agent.core.estimate import Estimate, WorkloadEstimate
from carico_agent.core.estimators import CARICO, ESTIMATORS, Judgement, Situation, Span
from carico_agent.core.held import held
from carico_agent.core.intake import Batch, Intake
from carico_agent.core.lifetimes import DAY_S
from carico_agent.core.measured import STALE_S, MeasuredPods
from carico_agent.core.mix import Mix
from carico_agent.core.outlook import Outlook
from carico_agent.core.pods import PodSample
from carico_agent.core.room import LIKELY, PRIOR_CHEAPEST, NextPod, Prior, Room, holding, next_pod
from carico_agent.core.room import UsageNow as Now
from carico_agent.core.subspace import Subspace, capacity
from carico_agent.core.workloads import WorkloadCost, checked

STATE_VERSION = 2
READABLE_VERSIONS = (1, 2)
"""Version 1 knew no workloads: its one cost becomes the prior of the next Pod."""
ECHO_S = 1.0
"""How long after Pods left a saturated reading may still be theirs [s]: the Dynamic EMA needs about 0.8 s to follow."""
DOUBT_IN_CHURN = 9.0
"""A batch taken on a node that never settles counts with three times the standard deviation."""
SMOOTHED_RATIO = 0.05
"""Variance that the Dynamic EMA leaves of the samples' own."""
OUTLOOK_EVERY_S = 60.0
"""The outlook is told who runs this often [s]."""
LAG_S, STEP_RATIO = 1.0, 25.0
"""Smoothed usage lags behind usage that moves by so long [s]. A batch further away than five standard deviations is a
step of the host and says nothing about how usage moves."""
MAX_LOCAL_WORKLOADS = 32
"""Workloads a node sends to others."""


class CapacityModel:
    """Says how many more Pods fit: of the next Pod to arrive, or of a workload.

    `resources` names the channels of `usage`; `config` is a ModelConfig. Time is an argument, in seconds of any
    monotonic clock; nothing here reads a clock or a file. With samples of the node alone it believes usage = base +
    cost × Pods and learns both:

    >>> m = CapacityModel(resources=("cpu", "memory"), config=ModelConfig(cores=4))
    >>> for tick in range(600):                                # a minute of three busy Pods after one of none
    ...     busy = tick >= 300
    ...     m.observe(tick * 0.1, [0.01 + 0.375 * busy, 0.2], pods=3 * busy)
    >>> e = m.estimate()
    >>> e.mode, e.limiting, round(e.pod_capacity, 1), round(e.slots, 1)
    ('measured', 'cpu', 4.9, 7.9)

    Given every few seconds what each Pod uses, it knows what each workload costs:

    >>> web = [PodSample(f"web-{i}", "shop/web", (0.12, 0.01)) for i in range(3)]
    >>> agent = [PodSample("agent", "kube-system/agent", (0.02, 0.05), per_node=True)]
    >>> for tick in range(600, 900):
    ...     m.observe(tick * 0.1, [0.4, 0.2], pods=4)
    ...     if tick % 50 == 0:
    ...         m.observe_pods(tick * 0.1, web + agent)
    >>> e = m.estimate(workload="shop/web")
    >>> e.mode, e.limiting, round(e.pod_capacity, 1), [round(x, 2) for x in e.room]
    ('measured', 'cpu', 5.0, [0.6, 0.8])

    Sources: *CARICO* (dissertation), chapters 3 and 4, for Capacity and the filters.
    """

    def __init__(self, resources: Sequence[str] = ("cpu", "memory"), config: ModelConfig | None = None) -> None:
        self.resources = tuple(resources)
        self.config = config or ModelConfig()
        if not self.resources or len(set(self.resources)) != len(self.resources):
            raise ValueError(f"resources must be distinct names, at least one; got {self.resources}")
        if problems := self.config.problems(self.resources):
            raise ValueError("; ".join(problems))
        if self.config.estimator not in ESTIMATORS:
            raise ValueError(f"estimator {self.config.estimator!r} is not one of {', '.join(ESTIMATORS)}")
        c, m = self.config, len(self.resources)
        self._limits_of = {serves: tuple(c.limit(name, serves) for name in self.resources) for serves in (False, True)}
        self._intake = Intake(self.resources, c)
        self._estimator = ESTIMATORS[c.estimator](c, self.resources)
        self._counts_units = self._estimator.method == CARICO  # Capacity k, in units of the subspace
        self._local = Subspace.empty(m)
        self._global: tuple[Subspace, float] | None = None
        self._workload = self._local
        self._unit: tuple[float, ...] = (0.0,) * m  # the workload's σ₁u₁
        self._halted_s = 0.0
        self._prior = self._own_prior = Prior(c.cost_prior(self.resources))
        self._noise = [c.noise_sd**2] * m  # variance of the node's smoothed usage, learned while Pods are measured
        self._jitter, self._drift = list(self._noise), [0.0] * m  # its parts: of samples, and of usage that moves
        self._mix = Mix()
        self._noise_batches = 0  # that it was learned from
        self._batch_mean = [nan] * m  # of the batch before, if it was clean
        self._measured = MeasuredPods(m, self.resources.index("cpu") if "cpu" in self.resources else None, c.cores)
        self._resumed = False
        self._resume_t: float | None = None  # when the first sample came after the clock was restarted
        self._next: NextPod | None = None  # made when asked for, until workloads change
        self._mix_changed: dict[int, str] = {}  # the same, per limiting resource
        self.outlook = Outlook(self.resources)  # saved apart from the rest: it is large and changes slowly
        self._outlook_t = -inf  # when it was last told who runs [unix s]

    def restart_clock(self) -> None:
        """Begin a new clock (after a reboot or a pause): what was learned stays, what was under way is dropped."""
        self._intake.restart()
        self._halted_s = 0.0
        self._batch_mean = [nan] * len(self.resources)
        self._measured.restart_clock()
        self._mix.restart()
        self._resumed, self._resume_t = True, None

    def limit_pods(self, max_pods: int | None) -> None:
        """Claim at most so many slots from now on: nothing that was learned depends on it."""
        self.config = replace(self.config, max_pods=max_pods)

    # ---- in

    def observe(self, t: float, usage: Sequence[float], pods: int, churn: bool = False) -> None:
        """Take one sample: `t` [s], `usage` in [0,1] or NaN per resource, Pods now, and whether containers churn."""
        batch = self._intake.take(t, usage, pods, churn)
        if self._resumed and self._resume_t is None:
            self._resume_t = t
        if batch is not None:
            self._learn(batch)

    def count(self, t: float, pods: int, churn: bool = False) -> None:
        """The number of Pods changed at `t`, between two samples: the next estimate counts with it at once."""
        self._intake.count(t, pods, churn)

    def observe_pods(
        self,
        t: float,
        pods: Sequence[PodSample],
        host: Sequence[float] | None = None,
        wall_t: float | None = None,
    ) -> None:
        """Take what each Pod uses, all Pods that run, every few seconds. The same object again is no new reading.

        `host` is what the rest of the machine uses, where the caller can measure it; otherwise it is what the node
        uses and no Pod does, and what it does whenever a Pod starts (pulls of images) may be taken for throttling.
        `wall_t` is the same instant by the wall clock [unix s]: the outlook learns days from it, once a minute.
        """
        if host is not None and len(host) != len(self.resources):
            raise ValueError(f"{len(host)} values of the host's usage for {len(self.resources)} resources")
        if self._counts_units:
            return  # *CARICO* knows the number of Pods alone
        measured, settled = self._measured, not self._intake.unsettled
        changed = measured.observe(t, pods)
        if host is not None:
            measured.host.known(host, self._intake.usage(), measured.together)
        else:
            cpu = measured.host.cpu
            jump = self._intake.take_jump()[cpu] if cpu is not None else 0.0
            measured.learn_host(self._intake.usage(), jump, settled)
        if settled:
            measured.compare_count(self.pods)
        if self._mix.take(t, measured.shares):
            self._mix_changed.clear()
        if changed:
            self._forget_answers()
        if wall_t is not None and not 0 <= wall_t - self._outlook_t < OUTLOOK_EVERY_S:
            self._outlook_t = wall_t
            self.outlook.observe(wall_t, pods)

    def _forget_answers(self) -> None:
        self._next = None
        self._mix_changed.clear()

    def _learn(self, batch: Batch) -> None:
        """Once per batch: the subspace takes it in where Capacity is counted in its units, and, if the node was
        settled, the estimator learns from it."""
        c = self.config
        if self._counts_units:
            smoothed = [[y if y == y else 0.0 for y in row] for row in batch.smoothed]  # what is unknown shows nothing
            self._local = self._local.take_samples(smoothed, c.forget, c.rank)
            self._renew_workload()
        self._halted_s = 0.0 if batch.clean else self._halted_s + batch.length_s
        if batch.clean or self._halted_s > c.halt_max_s:
            seen = Situation(batch.typical(), self._unit, batch.pods)
            self._estimator.learn(seen, batch.length_s, 1.0 if batch.clean else DOUBT_IN_CHURN)
        if not batch.clean:
            self._batch_mean = [nan] * len(self.resources)  # Pods moved usage
        elif self._measured.t is not None:
            self._learn_noise(batch)

    def _learn_noise(self, batch: Batch) -> None:
        self._noise_batches += 1
        share = max(0.05, 1 / (1 + self._noise_batches))
        for i, column in enumerate(zip(*batch.raw, strict=True)):
            mean = sum(column) / len(column)
            variance = sum((y - mean) ** 2 for y in column) / len(column)
            if variance != variance:
                continue
            moved, self._batch_mean[i] = mean - self._batch_mean[i], mean
            # two means differ by 2/n of the samples' variance; the rest is usage that moves, behind which we lag
            moved = min(moved**2, STEP_RATIO * max(self._noise[i], variance)) - 2 * variance / len(column)
            self._drift[i] += share * (moved - self._drift[i]) if moved == moved else 0.0
            self._jitter[i] += share * (SMOOTHED_RATIO * variance - self._jitter[i])
            self._noise[i] = self._jitter[i] + LAG_S**2 * max(0.0, self._drift[i])

    def _renew_workload(self) -> None:
        before = self._unit
        self._workload = self._local
        if self._global is not None:
            self._workload = self._local.merge(*self._global)
        self._unit = tuple(self._workload.unit.tolist())
        self._estimator.change_unit(before, self._unit, self._intake.usage())

    # ---- out

    def estimate(self, workload: str | None = None, workloads: bool = True, horizon_s: float | None = None) -> Estimate:
        """The answer for the last sample: for the next Pod, or for a `workload` of Pods. Changes nothing.

        Without `workloads` the list of all workloads stays empty: that costs half as much on a node that knows many.
        With `horizon_s` the answer holds for so long [s], by the outlook: usage has days, and Pods stay for hours.
        """
        if horizon_s is not None:
            return self.hold(self.estimate(workload, workloads=False), horizon_s, workload)
        usage = self._intake.usage()
        judgement = self._estimator.judge(Situation(usage, self._unit, self.pods))
        if self._measured.fresh(self._intake.t):
            return self._estimate_measured(workload, usage, judgement, workloads)
        node_wide = workload is None or self._counts_units  # *CARICO* takes all Pods for alike
        found = self._node_wide(judgement, usage) if node_wide else self._of_workload(workload or "", usage)
        return self._estimate(found, usage, judgement.baseline, judgement.per_pod_cost)

    def hold(self, now: Estimate, horizon_s: float, workload: str | None = None) -> Estimate:
        """An estimate of this instant, made for the next Pod or for a `workload`, as it holds for so long [s]."""
        if workload is not None:
            return held(now, self.outlook, horizon_s, {workload: 1.0}, workload)
        return held(now, self.outlook, horizon_s, self._next.shares if self._next is not None else {})

    def horizon_s(self, workload: str | None = None) -> float:
        """For how long a Pod of a workload stays [s]; for the next Pod, the longest of the workloads that are
        likely."""
        if workload is not None:
            return self.outlook.lifetime(workload).horizon_s
        shares = self._next.shares if self._next is not None else {}
        likely = [self.outlook.lifetime(name).horizon_s for name, share in shares.items() if share >= LIKELY]
        return max(likely, default=DAY_S)

    def _node_wide(self, judgement: Judgement, usage: list[float]) -> answer.Answer:
        """Without measured Pods: from usage, or, where Pods have just come or gone, from what was learned."""
        unsettled, resuming = self._intake.unsettled, self._resuming()
        span = judgement.predicted if unsettled else judgement.measured
        if not self._counts_units:
            if self._surely_full(usage) or resuming:
                span = min(span, judgement.measured, key=lambda room: room.value)
            if not judgement.trusted:
                span = answer.learning(
                    span, self._room(usage).fits(self._prior.cost, self._prior.cost_sd, PRIOR_CHEAPEST)
                )
            if not self.pods:
                span = answer.one_place(span, usage, self._limits)
        trusted = judgement.trusted and all(y == y for y in usage)
        return answer.Answer(span, judgement.cost_vector, trusted, unsettled or resuming)

    def _resuming(self) -> bool:
        """After a restart, until all Pods that were known before have been read again.

        Why: with what was remembered of them a node said 9.9 measured, and 0.5 two seconds later.
        """
        if not self._resumed:
            return False
        if self._resume_t is None or self._intake.t is None:
            return True
        return self._intake.t - self._resume_t < STALE_S and self._measured.remembers()

    def _of_workload(self, workload: str, usage: list[float]) -> answer.Answer:
        """A workload while Pods are not measured: by what is remembered of it or known elsewhere, else by the prior."""
        room, known = self._room(usage), self._measured.workload(workload)
        prior = room.fits(self._prior.cost, self._prior.cost_sd, PRIOR_CHEAPEST)
        if known is None or not self._prior.knows(known):
            if known is not None and known.hint is not None:
                prior = holding(prior, [room.fits(known.hint.cost, known.hint.spread)])
            return answer.Answer(prior, tuple(self._prior.cost), False, False)
        span = room.fits(known.cost, known.cost_sd)
        return answer.Answer(span, tuple(known.cost), all(y == y for y in usage), True)

    def _room(self, usage: Sequence[float]) -> Room:
        """By the node's usage alone."""
        free = [limit - y for limit, y in zip(self._limits, usage, strict=True)]
        return Room(free, [self.config.noise_sd] * len(free), False)

    def _estimate_measured(
        self, workload: str | None, usage: list[float], judgement: Judgement, list_workloads: bool
    ) -> Estimate:
        pods = self._measured
        if self._next is None:
            self._next = next_pod(pods, self._prior)
        answers = answer.MeasuredAnswer(
            pods, self._prior, self._next, self._situation(usage), self._unmeasured_cost(judgement)
        )
        found = answers.next() if workload is None else answers.of(workload)
        workloads = answers.workloads(self.resources, self._most()) if list_workloads else ()
        told = self._estimate(found, usage, nan, nan, tuple(pods.host.usage), tuple(answers.room.free), workloads)
        if workload is not None or found.span.limiting is None:
            return told
        changed = self._changed_mix(found.span.limiting)
        return replace(told, mix_changed=changed) if changed else told

    def _changed_mix(self, limiting: int) -> str:
        if limiting not in self._mix_changed:
            workloads = self._measured.workloads.by_name
            costs = {name: one.cost for name, one in workloads.items() if one.shown}
            self._mix_changed[limiting] = self._mix.change(costs, limiting)
        return self._mix_changed[limiting]

    def _situation(self, usage: list[float]) -> Now:
        intake, pods = self._intake, self._measured
        t = intake.t if intake.t is not None else pods.t or 0.0
        extra = pods.extra(self.pods, intake.changed_t())
        came = self.pods - intake.calm_pods
        unsettled_s = t - intake.calm_t if intake.unsettled else 0.0
        settling = intake.unsettled, unsettled_s
        return Now(
            t, usage, self._noise, self._limits, *settling, intake.calm, came, intake.rose, extra, self._resuming()
        )

    def _unmeasured_cost(self, judgement: Judgement) -> tuple[list[float], list[float]]:
        """What a Pod costs in resources that no Pod is measured in (network), by the node-wide filter."""
        m = len(self.resources)
        cost, cost_sd = [nan] * m, [nan] * m
        if all(self._measured.seen):
            return cost, cost_sd
        for i, precision in enumerate(self._estimator.local_cost()[1]):
            if not self._measured.seen[i] and precision > 0:
                cost[i], cost_sd[i] = judgement.cost_vector[i], sqrt(1 / precision)
        return cost, cost_sd

    def _estimate(
        self,
        found: answer.Answer,
        usage: list[float],
        baseline: float,
        per_pod_cost: float,
        host: tuple[float, ...] = (),
        room: tuple[float, ...] = (),
        workloads: tuple[WorkloadEstimate, ...] = (),
    ) -> Estimate:
        span, limiting = self._bounded(found.span)
        return Estimate(
            pod_capacity=span.value,
            low=span.low,
            high=span.high,
            slots=self.pods + span.value,
            capacity=capacity(usage, self._unit, self._limits)[0] if self._counts_units else nan,
            baseline=baseline,
            per_pod_cost=per_pod_cost,
            cost_vector=tuple(c if c == c else 0.0 for c in found.cost),
            mode="learning" if not found.trusted else "predicted" if found.predicted else "measured",
            limiting=limiting,
            pods=self.pods,
            sigma=self._workload.magnitude if self._counts_units else nan,
            direction=tuple(self._workload.direction.tolist()) if self._counts_units else (),
            usage=tuple(usage),
            measured=bool(room),
            host=host,
            room=room,
            workloads=workloads,
            limits=self._limits,
        )

    def _surely_full(self, usage: list[float]) -> bool:
        """A resource is saturated, and not as an echo of Pods that have just left: no prediction argues with that.

        Why: where Pods come and go without a pause usage is never settled, and a cost learned from light Pods would
        keep the node open while heavy ones fill it (lab/REPORT.md, "A workload that suddenly turns heavy").
        """
        t = self._intake.t or 0.0
        return t >= self._intake.fell_t + ECHO_S and any(y >= self.config.ceiling for y in usage)

    def _most(self) -> int | None:
        return None if self.config.max_pods is None else max(0, self.config.max_pods - self.pods)

    def _bounded(self, span: Span) -> tuple[Span, str | None]:
        limiting = self.resources[span.limiting] if span.limiting is not None else None
        most = self._most()
        if most is None:
            return span, limiting
        span, limited = answer.at_most(span, most)
        return span, "pods" if limited else limiting

    # ---- what nodes exchange

    @property
    def _limits(self) -> tuple[float, ...]:
        """Usage at which a resource is full, by who runs here."""
        return self._limits_of[self._measured.serves]

    @property
    def pods(self) -> int:
        """Pods counted last."""
        return self._intake.counted or 0

    @property
    def subspace(self) -> Subspace:
        """This node's own recent usage, never mixed with what others sent: this is what may be sent to them. Empty
        unless an estimator of the method carico counts Capacity in its units."""
        return self._local

    @property
    def workload(self) -> Subspace:
        """The workload Capacity is counted in: the local subspace, merged with the cluster's where known."""
        return self._workload

    def merge(self, other: Subspace, weight: float) -> None:
        """Count Capacity in the cluster's unit too: from now on the workload is merge(local, other, weight)."""
        self._local.merge(other, weight)  # raises on a bad weight or size before anything changes
        if not self._counts_units:
            return
        self._global = (other, float(weight))
        self._renew_workload()

    @property
    def local_cost(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What one Pod costs here by this node's own evidence, and the precision (1/variance) of that."""
        return self._estimator.local_cost()

    def learn_cost(self, cost: Sequence[float], precision: Sequence[float]) -> None:
        """What one Pod costs elsewhere, and how precisely that is known; replaces what was learned before."""
        if len(cost) != len(self.resources) or len(precision) != len(self.resources):
            raise ValueError(f"a cost and a precision for each of {self.resources} are needed")
        if not all(0 <= c <= 1 for c in cost) or not all(0 <= p < inf for p in precision):
            raise ValueError(f"cost {list(cost)} must be in [0, 1] and precision {list(precision)} at least 0")
        self._estimator.learn_cost(cost, precision)
        self._prior = self._own_prior.learned(cost, precision)
        self._forget_answers()

    def local_workloads(self) -> list[WorkloadCost]:
        """What each workload costs by this node's own evidence: at most 32 workloads, those that arrive most."""
        known = self._measured.workloads.local(MAX_LOCAL_WORKLOADS, self._prior.believes)
        return [replace(cost, profile=self.outlook.profile(cost.workload)) for cost in known]

    def learn_workloads(self, workloads: Sequence[WorkloadCost]) -> None:
        """What workloads cost elsewhere; replaces what was learned before. Used for workloads that never ran here."""
        self._measured.workloads.learn(checked(workloads, len(self.resources)))
        self.outlook.learn_elsewhere({cost.workload: cost.profile for cost in workloads if cost.profile is not None})
        self._forget_answers()

    # ---- save and restore

    def state(self) -> dict[str, Any]:
        """Everything, JSON-able: a restored model gives the same answers to the same samples."""
        ema, clock = self._intake.state()
        return {
            "version": STATE_VERSION,
            "resources": list(self.resources),
            "config": self.config.state(),
            "ema": ema,
            "subspace": self._local.state(),
            "global": [self._global[0].state(), self._global[1]] if self._global else None,
            "workload": self._workload.state(),
            "estimator": self._estimator.state(),
            "clock": clock | {"halted_s": self._halted_s},
            "pods": self._measured.state(),
            "prior": [self._own_prior.state(), self._prior.state()],
            "mix": self._mix.state(),
            "noise": list(self._noise),
            "jitter": list(self._jitter),
            "drift": list(self._drift),
            "noise_batches": self._noise_batches,
            "batch_mean": [y if y == y else None for y in self._batch_mean],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "CapacityModel":
        """The model that `state` was taken from. Raises ValueError on a state that is damaged or of another version."""
        if not isinstance(state, Mapping) or state.get("version") not in READABLE_VERSIONS:
            raise ValueError(f"not a model state of version {' or '.join(map(str, READABLE_VERSIONS))}")
        try:
            model = cls(tuple(state["resources"]), ModelConfig(**state["config"]))
            model._restore(state)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"damaged model state: {error!r}") from error
        return model

    def _restore(self, state: Mapping[str, Any]) -> None:
        m = len(self.resources)
        self._intake.restore(state["ema"], state["clock"])
        self._halted_s = float(state["clock"]["halted_s"])
        local, workload = Subspace.from_state(state["subspace"], m), Subspace.from_state(state["workload"], m)
        shared = (Subspace.from_state(state["global"][0], m), float(state["global"][1])) if state["global"] else None
        if self._counts_units:  # states of earlier versions have them with every estimator
            self._local, self._workload, self._global = local, workload, shared
            self._unit = tuple(workload.unit.tolist())
        self._estimator.restore(state["estimator"])
        if state["version"] == 1:
            self._prior = self._own_prior = self._own_prior.learned(*self._estimator.local_cost())
            return
        self._measured.restore(state["pods"])
        self._own_prior, self._prior = (Prior.from_state(one, m) for one in state["prior"])
        self._noise = [float(x) for x in state["noise"]]
        # the others are missing in older states
        if "mix" in state:
            self._mix.restore(state["mix"])
        self._jitter = [float(x) for x in state.get("jitter", self._noise)]
        self._drift = [float(x) for x in state.get("drift", [0.0] * m)]
        self._noise_batches = int(state.get("noise_batches", 100))
        self._batch_mean = [nan if y is None else float(y) for y in state.get("batch_mean", [None] * m)]
        if any(len(row) != m for row in (self._noise, self._jitter, self._drift, self._batch_mean)):
            raise ValueError("damaged model state: noise")
