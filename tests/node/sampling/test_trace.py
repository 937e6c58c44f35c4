import gzip
import json
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carico_agent.core import PodSample
from carico_agent.node.sampling import BadTrace, PodMeasurements, Reading, TraceRow, TraceWriter, read_trace

from .test_derive import READINGS, START


def record(path, rows):
    writer = TraceWriter(path, node="n1", cores=2, resources=("cpu", "memory"))
    for reading, pods, churn in rows:
        writer.write(TraceRow(reading, pods, churn))
    writer.close()


def as_rows(path):
    return [(row.reading, row.pods, row.churn) for row in read_trace(path)[1]]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(rows=st.lists(st.tuples(READINGS, st.integers(0, 500), st.booleans()), max_size=5))
def test_round_trip(tmp_path, name, rows):
    rows.sort(key=lambda row: row[0].t)
    record(tmp_path / name, rows)
    header, _ = read_trace(tmp_path / name)
    assert (header.node, header.cores, header.resources) == ("n1", 2, ("cpu", "memory"))
    assert as_rows(tmp_path / name) == rows


def test_every_counter_of_a_reading_comes_back(tmp_path):
    """Also one that was added after this test was written."""
    counters = {field.name: 7 + n for n, field in enumerate(fields(Reading)) if field.type == int | None}
    reading = Reading(1.0, **counters)
    record(tmp_path / "a", [(reading, 1, False)])
    assert as_rows(tmp_path / "a") == [(reading, 1, False)]
    assert {field.name for field in fields(Reading)} - counters.keys() == {"t", "disks", "links", "lacks"}


SECONDS = [(Reading(float(t) / 10, cores=2, cpu_total=t), 1, False) for t in range(100)]


def test_a_running_writer_can_be_read(tmp_path):
    for name in ("a", "a.gz"):
        writer = TraceWriter(tmp_path / name, node="n1", cores=2, resources=("cpu",))
        for row in SECONDS:
            writer.write(TraceRow(*row))
        seen = as_rows(tmp_path / name)  # not closed: a .gz has no end yet
        assert 90 <= len(seen) <= 100 and seen == SECONDS[: len(seen)]
        writer.close()
        writer.close()
        assert as_rows(tmp_path / name) == SECONDS


def test_cut_anywhere_keeps_the_lines_before(tmp_path):
    path = tmp_path / "a"
    record(path, SECONDS[:3])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) + 1):
        path.write_bytes(whole[:length])
        assert as_rows(path) == SECONDS[: whole[first:length].count(b"\n")]


def test_a_cut_gzip_keeps_what_was_flushed(tmp_path):
    path = tmp_path / "a.gz"
    record(path, SECONDS)
    path.write_bytes(path.read_bytes()[:-20])
    seen = as_rows(path)
    assert len(seen) >= 80 and seen == SECONDS[: len(seen)]


HEADER = {"carico_trace": 1, "node": "n", "cores": 2, "resources": ["cpu"]}
ROW = {"t": 1.0, "pods": 0, "churn": False}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "line 1: empty"),
        (["garbage"], "line 1: not JSON"),
        (["[1]"], "line 1: an object"),
        ([{**HEADER, "carico_trace": 2}], "line 1: carico_trace is 2"),
        ([{**HEADER, "cores": "2"}], "line 1: cores"),
        ([{**HEADER, "resources": "cpu"}], "line 1: resources"),
        ([{**HEADER, "node": 3}], "line 1: node"),
        ([HEADER, "{"], "line 2: not JSON"),
        ([HEADER, ROW, "\x00"], "line 3: not JSON"),
        ([HEADER, ROW, {**ROW, "t": 0.5}], "line 3: t: 0.5 is before 1.0"),
        ([HEADER, {**ROW, "t": None}], "line 2: t"),
        ([HEADER, '{"t":NaN,"pods":0,"churn":false}'], "line 2: t"),
        ([HEADER, {**ROW, "pods": -1}], "line 2: pods"),
        ([HEADER, {**ROW, "churn": 1}], "line 2: churn"),
        ([HEADER, {**ROW, "cpu_total": 1.5}], "line 2: cpu_total"),
        ([HEADER, {**ROW, "cpu_totl": 1}], "line 2: unknown field cpu_totl"),
        ([HEADER, {**ROW, "disks": 1}], "disks"),
        ([HEADER, {**ROW, "disks": {"a": "b"}}], "line 2: a:"),
        ([HEADER, {**ROW, "links": {"e": [1]}}], "links.e"),
        ([HEADER, {**ROW, "lacks": "x"}], "line 2: lacks"),
        ([HEADER, "[" * 100_000], "line 2: not JSON"),
    ],
)
def test_bad_lines_are_named(tmp_path, lines, says):
    path = tmp_path / "a"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    with pytest.raises(BadTrace, match=says):
        as_rows(path)


def test_what_is_no_gzip(tmp_path):
    (tmp_path / "a.gz").write_text("hello")
    with pytest.raises(BadTrace, match="not gzip"):
        read_trace(tmp_path / "a.gz")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(BadTrace, match="empty"):
        read_trace(tmp_path / "b.gz")
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "c")


def test_unknown_is_left_out(tmp_path):
    record(tmp_path / "a", [(Reading(1.0), 0, False)])
    assert json.loads((tmp_path / "a").read_text().splitlines()[1]) == ROW
    record(tmp_path / "a", [(START, 3, True)])
    assert as_rows(tmp_path / "a") == [(START, 3, True)]


def test_what_each_pod_uses_is_kept(tmp_path):
    pods = (PodSample("a1", "shop/web", (0.125, 0.25)), PodSample("b2", "kube-system/proxy", (0.5, float("nan")), True))
    writer = TraceWriter(tmp_path / "a.jsonl", node="n1", cores=2, resources=("cpu", "memory"))
    writer.write(TraceRow(START, 2, False, PodMeasurements(pods, 1.5, 0.25)))
    writer.write(TraceRow(replace(START, t=10.1), 2, False))
    writer.close()
    first, second = read_trace(tmp_path / "a.jsonl")[1]
    assert first.measured.samples[0] == pods[0] and second.measured is None
    assert (first.measured.used_cores, first.measured.throttled_ratio) == (1.5, 0.25)
    assert (
        first.measured.samples[1].usage[0] == 0.5
        and first.measured.samples[1].usage[1] != first.measured.samples[1].usage[1]
    )
    assert first.measured.samples[1].per_node


@pytest.mark.parametrize("pod", [1, [], ["a", "k", 1, [0.5]], ["a", "k", True, "x"], ["a", "k", True, 5], {"a": 1}])
def test_a_pod_that_is_none_is_refused(tmp_path, pod):
    writer = TraceWriter(tmp_path / "a.jsonl", node="n1", cores=2, resources=("cpu",))
    writer.write(TraceRow(START, 2, False))
    writer.close()
    path = tmp_path / "a.jsonl"
    path.write_text(
        path.read_text().rstrip()[:-1]
        + f', "measured": {{"used_cores":0,"throttled_ratio":0,"pods":[{json.dumps(pod)}]}}}}\n'
    )
    with pytest.raises(BadTrace, match="line 2: measured"):
        list(read_trace(path)[1])
