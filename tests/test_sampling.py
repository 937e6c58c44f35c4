"""Sampling: rows understood late make the same model as rows understood at once."""

from collections import deque
from collections.abc import Iterator

from carico_agent.app.pipeline import Pipeline
from carico_agent.app.sampling import Live, Sampling
from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.settings import Settings
from carico_agent.supervise.budget import Allowance, Pace
from carico_agent.supervise.cost import OwnCost
from carico_agent.telemetry import NodeReader, Reading, Root, TraceRow

RESOURCES = ("cpu", "memory")


def rows(seconds: float) -> list[TraceRow]:
    """A node that gets its first Pod after four seconds, between two ticks."""
    made, idle = [], 0
    for tick in range(round(seconds * 10)):
        pods = int(tick > 40)
        idle += 15 if pods else 39
        made.append(TraceRow(Reading(tick / 10, 4, 40 * tick, idle, 0, None, 1000, 700), pods, 40 < tick < 50))
    return made


def fresh() -> Sampling:
    return Sampling(Pipeline(CapacityModel(RESOURCES, ModelConfig(cores=4))), OwnCost())


def state_of(sampling: Sampling) -> bytes:
    return sampling.encoded_state(lambda model: repr(model.state()).encode())


def test_a_backlog_is_fed_before_anything_is_answered() -> None:
    at_once, late, waiting = fresh(), fresh(), deque[TraceRow]()

    def backlog() -> Iterator[TraceRow]:
        while waiting:
            yield waiting.popleft()

    late.backlog = backlog
    for row in rows(9.0):
        t = row.reading.t
        at_once.take(row)
        waiting.append(row)
        if t == 4.0:  # the Pod starts: the count must not overtake the rows before it
            for sampling in (at_once, late):
                sampling.count(4.05, 1, churn=True)
            assert not waiting and late.look()[0].pods == 1
        assert at_once.due(t) == late.due(t)
    assert len(waiting) < 10
    assert state_of(at_once) == state_of(late) and not waiting


def test_a_full_disk_ends_the_recording_and_not_the_sampling(caplog) -> None:
    class Full:
        def write(self, *row: object) -> None:
            raise OSError(28, "No space left on device")

    sampling, updates = fresh(), []
    live = Live(
        NodeReader(Root("/")),
        type("Pods", (), {"count": 0, "churn_until_s": 0.0})(),
        sampling,
        OwnCost(),
        Pace(Allowance(1.0, 1e12, 1.0)),
        Settings().sampling,
        lambda: updates.append(1),
        Full(),
    )
    live._tick(1.0)
    live._tick(1.1)
    assert updates == [1] and sampling.look()[1] is not None
    assert caplog.text.count("recording ends here: [Errno 28] No space left on device") == 1
    live._reader.close()
