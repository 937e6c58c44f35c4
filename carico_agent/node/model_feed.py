"""From the queue to the model: `step` takes everything out of the queue, parses and records it and feeds the model.

The sampling thread (sampling/thread.py) only makes the system calls of a tick and puts what it got into a SampleQueue.
Parsing, recording and the model live in the event loop's thread and need no lock; a tick waits for no other thread.

The agent's loop steps once a second, and before it counts a container that came or went. All other methods answer as of
the last step. The answers do not depend on how many samples one step takes: ten cost 0.6 ms with cold caches, fifty
1.4 ms.
"""

import logging
import time
from collections.abc import Callable, Iterator
from math import isfinite, nan

from carico_agent.core import CapacityModel, Estimate, Subspace, WorkloadEstimate
from carico_agent.federation.contribution import Contribution, GlobalView
from carico_agent.federation.workloads import WorkloadFit
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.lib.trace.containers import PodsRow
from carico_agent.node.measurements import Measurements
from carico_agent.node.pipeline import Pipeline
from carico_agent.node.publish.status import Ahead
from carico_agent.node.sampling import NodeReader, TraceRow, TraceWriter, Usage
from carico_agent.node.sampling.queue import SampleQueue, Tick, UpdateClock

log = logging.getLogger(__name__)

FIRST_S = 1.0
"""From this much time between the first and the last sample on, what is not known yet will stay unknown [s]."""


class ModelFeed:
    """The consumer: owns the model. Only for the event loop's thread, except `memory`."""

    def __init__(self, pipeline: Pipeline, rows: Callable[[], Iterator[TraceRow]], cost: OwnCost) -> None:
        """`rows()` gives what was read and not yet fed, oldest first, each once."""
        self._pipeline, self._rows, self._cost = pipeline, rows, cost.stage("model")
        self._clock, self._first_t, self._last_t = UpdateClock(), nan, nan
        self._answer: Estimate | None = None  # until the model learns more

    def step(self) -> list[tuple[float, Estimate]]:
        """Feed the model with all that was read since the last step. Returns the seconds that ended meanwhile, each
        with the time of its last sample [monotonic s] and the answer at that time: one, or more if the step is late."""
        started_s, t, seconds = time.monotonic(), nan, []
        for row in self._rows():
            self._pipeline.step(row)
            self._answer, t = None, row.reading.t
            self._first_t = t if self._first_t != self._first_t else self._first_t
            if t >= self._clock.due_s and self._clock.due(t):
                seconds.append((t, self.estimate()))
        if t == t:
            self._last_t = t
            self._cost.record(time.monotonic() - started_s)
        return seconds

    @property
    def model(self) -> CapacityModel:
        return self._pipeline.model

    @property
    def has_first_answer(self) -> bool:
        """Two samples were read, and far enough apart to know every resource that this node has. On a busy node the
        first two may be too near to each other for the CPU."""
        usage = self._pipeline.usage
        if usage is None:
            return False
        return self._last_t - self._first_t >= FIRST_S or all(y == y for y in usage.values)

    def estimate(self) -> Estimate:
        """The answer now, without the table of workloads; made once, until the model learns more."""
        if self._answer is None:
            self._answer = self.model.estimate(workloads=False)
        return self._answer

    def table(self) -> tuple[WorkloadEstimate, ...]:
        """All workloads: what one Pod costs, how many more fit. On a node with 110 of them this takes 0.8 ms."""
        return self.model.estimate().workloads

    def of_workload(self, workload: str, horizon_s: float | None = None) -> Estimate:
        """How many more Pods of a workload fit, for so long [s]; None: for as long as they stay; 0: at this instant."""
        model = self.model
        if horizon_s == 0:
            return model.estimate(workload)
        return model.estimate(workload, horizon_s=model.horizon_s(workload) if horizon_s is None else horizon_s)

    def ahead(self, now: Estimate, horizon_s: float | None) -> Ahead:
        """An answer of this instant as it holds for the horizon [s]; None: for as long as the next Pod stays."""
        model = self.model
        held = model.hold(now, model.horizon_s() if horizon_s is None else horizon_s)
        return Ahead(held, model.outlook.peak_time(held.horizon_s, held.limiting))

    @property
    def usage(self) -> Usage | None:
        """Of the last sample that was understood; None before two samples were read."""
        return self._pipeline.usage

    def count(self, t: float, pods: int, churn: bool) -> None:
        """The number of Pods has changed at `t`, between two samples: step first, so that it overtakes none."""
        self.model.count(t, pods, churn)
        self._answer = None

    def contribution(self, sizes: tuple[float, ...]) -> Contribution:
        """What this node may send to the others: its own local model, never the cluster's."""
        model = self.model
        cost, precision = model.local_cost
        now = model.estimate()
        fits = {
            workload.workload: WorkloadFit(int(workload.fits), workload.limiting or "")
            for workload in now.workloads
            if workload.trusted and isfinite(workload.fits)
        }
        return Contribution(
            model.resources,
            model.subspace,
            10,
            cost,
            precision,
            model.pods,
            sizes,
            workloads=model.local_workloads(),
            room=now.room,
            fits=fits,
        )

    def learn(self, view: GlobalView | None, weight: float) -> None:
        """The cluster's view, or None when it is too old to be used."""
        model = self.model
        if view is None:
            nothing = [0.0] * len(model.resources)
            model.merge(Subspace.empty(len(nothing)), 0.0)
            model.learn_cost(nothing, nothing)
            model.learn_workloads([])
        else:
            model.merge(view.subspace, weight)
            model.learn_cost(*view.cost_to_learn())
            model.learn_workloads(view.workloads)
        self._answer = None

    def memory(self) -> float:
        """Its usage at the last row; NaN when unknown. From any thread."""
        usage = self._pipeline.usage
        return usage.detail.get("memory", nan) if usage else nan


class LiveRows:
    """What the samples say, each row recorded as it is understood."""

    def __init__(
        self,
        reader: NodeReader,
        queue: SampleQueue[Tick],
        measurements: Measurements,
        recorder: TraceWriter | None = None,
    ) -> None:
        self._reader, self._queue, self._measurements, self._recorder = reader, queue, measurements, recorder

    def __call__(self) -> Iterator[TraceRow]:
        for grab, pods, churn, turn in self._queue.take():
            measured = None if turn is None else self._measurements.take(turn)
            row = TraceRow(self._reader.interpret(grab), pods, churn, measured)
            self._record(row)
            yield row

    def record_pods(self, row: PodsRow) -> None:
        """Containers, about once a minute each; in the thread that calls for the samples."""
        if self._recorder is not None:
            self._recorder.write_pods(row)

    def _record(self, row: TraceRow) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.write(row)
        except OSError as error:  # a full disk ends the recording, not the sampling
            log.error("recording ends here: %s", error)
            self._recorder = None

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
        self._reader.close()
