"""Prometheus text in pieces: the same totals wherever it is cut, and broken lines do no harm."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.plane.exposition import MAX_KEYS, MetricsReader, read, total

TEXT = b"""# HELP requests Requests.
# TYPE requests counter
requests{verb="GET",path="/a \\"b\\" {c}, d=\\"e\\"",code="200"} 3
requests{verb="GET",path="x",code="500"} 2.5 1700000000000
requests{code="200",verb="PUT"} 1e3
requests_bucket{le="0.5",verb="GET"} 7
plain 12
plain_more 13
broken{verb="GET"
requests{verb="BAD"} many
gone NaN
"""
WANTED = {"requests": ("verb",), "plain": (), "broken": ()}


def test_sums_over_other_labels() -> None:
    found = read([TEXT], WANTED)
    assert found == {"requests": {("GET",): 5.5, ("PUT",): 1000.0}, "plain": {(): 12.0}}
    assert total(found, "requests") == 1005.5
    assert total(found, "none") is None


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_any_cuts_give_the_same(cuts: list[int]) -> None:
    ends = sorted({0, len(TEXT), *cuts})
    reader = MetricsReader(WANTED)
    for start, end in itertools.pairwise(ends):
        reader.feed(TEXT[start:end])
    assert reader.close() == read([TEXT], WANTED)


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(junk: bytes) -> None:
    assert () in read([junk, b"\nplain 1\n"], WANTED)["plain"]


def test_labels_without_end_stay_bounded() -> None:
    lines = (b'requests{verb="%d"} 1\n' % n for n in range(3 * MAX_KEYS))
    found = read(lines, WANTED)["requests"]
    assert len(found) == MAX_KEYS + 1
    assert sum(found.values()) == 3 * MAX_KEYS


def test_escapes() -> None:
    assert read([b'm{a="x\\\\n\\n\\"y"} 1\n'], {"m": ("a",)}) == {"m": {('x\\n\n"y',): 1.0}}


@pytest.mark.parametrize("line", [b"plain", b"plain ", b"requests{} ", b"requests}{ 1"])
def test_half_lines(line: bytes) -> None:
    assert read([line], WANTED) == {}
