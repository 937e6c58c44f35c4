"""From the kernel to the model, the event loop's side: it takes everything out of the queue, parses and records it and
feeds the model.

The sampling thread (`sampling_thread.py`) only makes the system calls of a tick and puts what it got into a SampleQueue
(`sample_queue.py`). Parsing, recording and the model so live in one thread and need no lock; a tick waits for nobody.

Whoever asks the model first lets it catch up with the queue, so nobody sees it late, and the answers are the same
whenever that happens. While nobody asks, it catches up every UNDERSTAND_S: ten samples cost 0.6 ms with cold caches,
fifty 1.4.
"""

import logging
import time
from collections.abc import Callable, Iterator
from math import inf, isfinite, nan

from carico_agent.core import CapacityModel, Estimate, Subspace
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

UNDERSTAND_S = 5.0
"""Samples wait this long at most for somebody who wants to know [s]."""

OnSecond = Callable[[float, Estimate], None]
"""Gets the time of a sample [monotonic s] and the answer after it, for each second of samples."""


class ModelFeed:
    """The consumer: owns the model. Only for the event loop's thread, except `memory`."""

    def __init__(
        self,
        pipeline: Pipeline,
        rows: Callable[[], Iterator[TraceRow]],
        cost: OwnCost,
        on_second: OnSecond = lambda t, estimate: None,
    ) -> None:
        """`rows()` gives what was read and not yet fed, oldest first, each once."""
        self._pipeline, self._rows, self._cost = pipeline, rows, cost.stage("model")
        self._on_second, self._clock, self._fed_s = on_second, UpdateClock(), -inf

    def current_model(self) -> CapacityModel:
        """The model, after it has taken in all that was read."""
        self.catch_up()
        return self._pipeline.model

    def catch_up(self) -> None:
        started_s, fed = time.monotonic(), False
        for row in self._rows():
            self._pipeline.step(row)
            fed = True
            t = row.reading.t
            if t >= self._clock.due_s and self._clock.due(t):
                self._on_second(t, self._pipeline.model.estimate(workloads=False))
        if fed:
            self._fed_s = time.monotonic()
            self._cost.record(self._fed_s - started_s)

    def catch_up_late(self) -> None:
        """Catch up unless somebody has let it do so lately."""
        if time.monotonic() - self._fed_s >= UNDERSTAND_S - 0.5 or self._pipeline.usage is None:
            self.catch_up()

    def look(self) -> tuple[Estimate, Usage | None]:
        """The answer now, and the usage it was made of; None before two samples were read."""
        return self.current_model().estimate(), self._pipeline.usage

    def of_workload(self, workload: str, horizon_s: float | None = None) -> Estimate:
        """How many more Pods of a workload fit, for so long [s]; None: for as long as they stay; 0: at this instant."""
        model = self.current_model()
        if horizon_s == 0:
            return model.estimate(workload)
        return model.estimate(workload, horizon_s=model.horizon_s(workload) if horizon_s is None else horizon_s)

    def ahead(self, now: Estimate, horizon_s: float | None) -> Ahead:
        """The answer `look` gave, as it holds for the horizon [s]; None: for as long as the next Pod stays."""
        model = self._pipeline.model
        held = model.hold(now, model.horizon_s() if horizon_s is None else horizon_s)
        return Ahead(held, model.outlook.peak_time(held.horizon_s, held.limiting))

    @property
    def usage(self) -> Usage | None:
        """Of the last sample that was understood; None before two samples were read."""
        return self._pipeline.usage

    def count(self, t: float, pods: int, churn: bool) -> None:
        """The number of Pods has changed at `t`, between two samples."""
        self.current_model().count(t, pods, churn)

    def contribution(self, sizes: tuple[float, ...]) -> Contribution:
        """What this node may send to the others: its own local model, never the cluster's."""
        model = self.current_model()
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
        model = self.current_model()
        if view is None:
            nothing = [0.0] * len(model.resources)
            model.merge(Subspace.empty(len(nothing)), 0.0)
            model.learn_cost(nothing, nothing)
            model.learn_workloads([])
        else:
            model.merge(view.subspace, weight)
            model.learn_cost(*view.cost_to_learn())
            model.learn_workloads(view.workloads)

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
