"""The model is fed: rows understood late make the same model as rows understood at once."""

import threading

from carico_agent.core import CapacityModel, Estimate, ModelConfig
from carico_agent.lib.supervise.budget import Allowance, Pace
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.node.measurements import Measurements
from carico_agent.node.model_feed import LiveRows, ModelFeed
from carico_agent.node.pipeline import Pipeline
from carico_agent.node.sampling import NodeReader, Reading, Root, TraceRow
from carico_agent.node.sampling.queue import SampleQueue, Tick, UpdateClock
from carico_agent.node.sampling.thread import Live
from carico_agent.node.state import encode
from carico_agent.settings import Settings, override

RESOURCES = ("cpu", "memory")


def rows(seconds: float) -> list[TraceRow]:
    """A node that gets its first Pod after four seconds, between two ticks."""
    made, idle = [], 0
    for tick in range(round(seconds * 10)):
        pods = int(tick > 40)
        idle += 15 if pods else 39
        made.append(TraceRow(Reading(tick / 10, 4, 40 * tick, idle, 0, None, 1000, 700), pods, 40 < tick < 50))
    return made


def fresh(queue: SampleQueue[TraceRow]) -> ModelFeed:
    return ModelFeed(Pipeline(CapacityModel(RESOURCES, ModelConfig(cores=4))), queue.take, OwnCost())


def test_rows_fed_late_make_the_same_model_as_rows_fed_at_once() -> None:
    at_once, late = fresh(first := SampleQueue()), fresh(second := SampleQueue())
    clock = UpdateClock()
    for row in rows(9.0):
        t = row.reading.t
        first.put(row)
        at_once.step()
        second.put(row)
        if t == 4.0:  # the Pod starts: the count must not overtake the rows before it
            late.step()
            assert not list(second.take())
            for feed in (at_once, late):
                feed.count(4.05, 1, churn=True)
            assert late.estimate().pods == 1
        if clock.due(t):
            late.step()
            assert (late.estimate(), late.usage) == (at_once.estimate(), at_once.usage)
    late.step()
    assert encode(at_once.model) == encode(late.model) and not list(second.take())


def test_a_queue_that_nobody_empties_keeps_the_newest_and_counts_the_rest() -> None:
    queue = SampleQueue[int](most=600)
    for n in range(1000):
        queue.put(n)
    assert queue.full and queue.dropped == 400
    assert list(queue.take()) == list(range(400, 1000)) and not queue.full


def test_one_producer_and_one_consumer_lose_nothing() -> None:
    queue, taken = SampleQueue[int](most=100_000), list[int]()
    producer = threading.Thread(target=lambda: [queue.put(n) for n in range(50_000)])
    producer.start()
    while producer.is_alive():
        taken += queue.take()
    taken += queue.take()
    assert taken == list(range(50_000)) and queue.dropped == 0


def test_a_full_disk_ends_the_recording_and_not_the_sampling(caplog) -> None:
    class Full:
        def write(self, *row: object) -> None:
            raise OSError(28, "No space left on device")

    reader, queue, updates = NodeReader(Root("/")), SampleQueue[Tick](), []
    rows = LiveRows(reader, queue, Measurements(reader.resources, 4, 1e9), Full())
    feed = ModelFeed(Pipeline(CapacityModel(reader.resources, ModelConfig(cores=4))), rows, OwnCost())
    live = Live(
        reader,
        type("Pods", (), {"count": 0, "churn_until_s": 0.0, "pods": {}})(),
        None,
        queue,
        OwnCost(),
        Pace(Allowance(1.0, 1e12, 1.0)),
        Settings().sampling,
        feed.memory,
        lambda: updates.append(1),
    )
    live.tick(1.0)
    live.tick(1.1)
    feed.step()
    assert updates == [1] and feed.usage is not None
    assert caplog.text.count("recording ends here: [Errno 28] No space left on device") == 1
    rows.close()


def test_parsing_recording_and_the_model_are_in_the_consumers_thread(tmp_path) -> None:
    reader, queue, threads = NodeReader(Root("/")), SampleQueue[Tick](), set[str]()

    class Noted:
        def write(self, *row: object) -> None:
            threads.add(threading.current_thread().name)

        def close(self) -> None:
            return

    rows = LiveRows(reader, queue, Measurements(reader.resources, 4, 1e9), Noted())
    feed = ModelFeed(Pipeline(CapacityModel(reader.resources, ModelConfig(cores=4))), rows, OwnCost())
    pods = type("Pods", (), {"count": 0, "churn_until_s": 0.0, "pods": {}})()
    updated = threading.Event()
    settings = override(Settings(), "sampling", period_s=0.02, realtime=False)
    live = Live(
        reader,
        pods,
        None,
        queue,
        OwnCost(),
        Pace(Allowance(1.0, 1e12, 1.0)),
        settings.sampling,
        feed.memory,
        updated.set,
    )
    live.start()
    assert updated.wait(60)
    assert not threads
    feed.step()
    live.stop()
    feed.step()
    rows.close()
    assert threads == {threading.current_thread().name}


def test_no_update_until_the_first_samples_are_apart() -> None:
    clock = UpdateClock()
    assert [clock.due(t) for t in (0.0, 0.01, 0.1, 0.2, 1.1)] == [False, False, True, False, True]


def test_seconds_understood_late_are_the_seconds_understood_at_once() -> None:
    at_once, late = list[tuple[float, Estimate]](), list[tuple[float, Estimate]]()
    queue, model = SampleQueue[TraceRow](), lambda: Pipeline(CapacityModel(RESOURCES, ModelConfig(cores=4)))
    first = ModelFeed(model(), queue.take, OwnCost())
    for row in rows(20.0):
        queue.put(row)
        at_once += first.step()
    second = ModelFeed(model(), lambda: iter(rows(20.0)), OwnCost())
    late += second.step()
    assert len(late) == 20 and late == at_once


def test_a_query_takes_nothing_out_of_the_queue() -> None:
    queue = SampleQueue[TraceRow]()
    feed = fresh(queue)
    for row in rows(3.0):
        queue.put(row)
    feed.step()
    before = encode(feed.model)
    for row in rows(6.0)[30:]:
        queue.put(row)
    asked = feed.estimate(), feed.table(), feed.of_workload("shop/web"), feed.usage, feed.ahead(feed.estimate(), None)
    assert asked and feed.estimate() is asked[0] and encode(feed.model) == before
    assert len(list(queue.take())) == 30


def test_the_first_answer_waits_for_the_cpu_and_not_for_what_never_comes() -> None:
    def row(t: float, memory: int | None) -> TraceRow:
        idle = round(300 * t)
        return TraceRow(Reading(t, 4, round(400 * t), idle, 0, None, memory, memory), 0, False)

    queue = SampleQueue[TraceRow]()
    feed = fresh(queue)
    seen = []
    for t, memory in ((0.0, 1000), (0.1, None), (0.5, None), (1.0, None)):
        queue.put(row(t, memory))
        feed.step()
        seen.append(feed.has_first_answer)
    assert seen == [False, False, False, True]
    known = fresh(queue)
    for t in (0.0, 0.1):
        queue.put(row(t, 1000))
    known.step()
    assert known.has_first_answer
