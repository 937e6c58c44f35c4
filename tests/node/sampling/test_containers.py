"""Rows of containers in traces: there and back, replay passes over them, errors name line and field."""

import json
from collections import Counter

import pytest

from carico_agent.lib.trace.containers import ContainerReading, PodsRow
from carico_agent.lib.trace.file import read_pods
from carico_agent.node.sampling import BadTrace, Reading, TraceRow, TraceWriter, read_trace

ROW = PodsRow(
    60.5,
    1.7e9,
    (
        ContainerReading(
            "shop", "web-1", "app", "Deployment", "web", 1_000_000, 2**28, 0, 10, 1, 0.5, 2**29, 1.0, 2**30
        ),
        ContainerReading("shop", "web-1", "side"),
    ),
)


def record(path, rows):
    writer = TraceWriter(path, node="n1", cores=2, resources=("cpu",))
    for row in rows:
        if isinstance(row, PodsRow):
            writer.write_pods(row)
        else:
            writer.write(TraceRow(*row))
    writer.close()


READINGS = [(Reading(float(t), cores=2, cpu_total=t), 1, False) for t in (60, 61)]


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_round_trip(tmp_path, name):
    record(tmp_path / name, [READINGS[0], ROW, READINGS[1]])
    rows = list(read_pods(tmp_path / name)[1])
    assert rows[1] == ROW and len(rows) == 3
    assert [(r.reading, r.pods, r.churn) for r in read_trace(tmp_path / name)[1]] == READINGS


def test_readings_may_follow_containers_that_were_read_after_them(tmp_path):
    """As the agent writes them: readings wait up to a second for the model."""
    record(tmp_path / "a", [ROW, *READINGS])
    assert [type(row) for row in read_pods(tmp_path / "a")[1]] == [PodsRow, TraceRow, TraceRow]
    assert [row.reading for row in read_trace(tmp_path / "a")[1]] == [reading for reading, _, _ in READINGS]


def test_a_trace_that_an_agent_recorded_on_a_node_is_read_to_its_end():
    """Its containers, line 1044, were read 0.9 s after the readings that follow them."""
    header, rows = read_pods("lab/results/node/node-mixed.trace.gz")
    kinds = Counter(type(row) for row in rows)
    assert header.cores == 2 and kinds[PodsRow] >= 4 and kinds[TraceRow] > 1043


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"time_s": "noon"}, "time_s: a number is expected"),
        ({"containers": {}}, "containers: a list is expected"),
        ({"containers": [3]}, "containers[0]: an object is expected"),
        ({"extra": 1}, "unknown field extra"),
        ({"containers": [{"namespace": "a", "pod": "b"}]}, "containers[0].container: a name is expected"),
        ({"containers": [{"namespace": "a", "pod": "b", "container": "c", "x": 1}]}, "containers[0]: unknown field x"),
        (
            {"containers": [{"namespace": "a", "pod": "b", "container": "c", "memory_bytes": -1}]},
            "containers[0].memory_bytes: 0 or more",
        ),
        ({"t": 1.0}, "t: 1.0 is before 60.5"),
    ],
)
def test_bad_rows_are_named(tmp_path, change, named):
    record(tmp_path / "a", [READINGS[0], ROW])
    row = {"row": "pods", "t": 61.0, "time_s": 1.7e9, "containers": [], **change}
    with (tmp_path / "a").open("a") as file:
        file.write(json.dumps(row) + "\n")
    for reader in (read_pods, read_trace):
        with pytest.raises(BadTrace, match="line 4: ") as refused:
            list(reader(tmp_path / "a")[1])
        assert named in str(refused.value)
