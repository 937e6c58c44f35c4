"""Tables: what is taken, what is refused and why."""

import pytest

from carico_agent.plane.curve import BadTable, Curve, parse_table


def test_linear_between_constant_beyond() -> None:
    curve = Curve.of([(10, 4), (2, 2)])
    assert [curve.cores(x) for x in (0, 2, 6, 10, 99)] == [2, 2, 3, 4, 4]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("x,f\n# nothing\n\n", "empty"),
        ("0,0\n1,0", "0 everywhere"),
        ("1,nan", "line 1: .*numbers"),
        ("1,inf", "line 1: .*numbers"),
        ("0,0\n-1,2", "line 2: .*negative"),
        ("1,-2", "line 1: .*negative"),
        ("1,2\nx,y", "line 2: .*numbers"),
        ("1,2,3", "line 1: two columns"),
        ("1", "line 1: two columns"),
        ("1,2\n1,3", "x = 1 has two values"),
        ("1e99,2", "line 1: .*at most"),
    ],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(BadTable, match=why):
        parse_table(text.splitlines())


def test_taken() -> None:
    curve = parse_table(["requests, cores", "# measured on Monday", "", "3, 2.5", "1, 1", " 1 , 1.0"])
    assert list(curve.x) == [1, 3]
    assert curve.reach(1.75) == 2


@pytest.mark.parametrize(
    ("points", "cores", "seats"),
    [
        ([(0, 0), (10, 1)], 0.7, 7),
        ([(0, 0), (10, 1)], 0.3, 3),
        ([(0, 5), (1, 2), (4, 8)], 4, 2),
        ([(1, 3), (5, 1), (9, 4)], 3.5, 9),
        ([(1, 3), (5, 1), (9, 4)], 2, 1),
        ([(1, 3), (5, 1)], 3.5, None),
        ([(0, 1), (1_000_000, 2)], 1.5, 500_000),
    ],
)
def test_the_smallest_concurrency_that_uses_so_many_cores(points, cores, seats) -> None:
    assert Curve.of(points).reach(cores) == seats


def test_the_peak_is_the_first_of_equals() -> None:
    assert Curve.of([(0, 0), (4, 2), (9, 2), (12, 1)]).peak() == (4, 2)
