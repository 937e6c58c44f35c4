"""Prometheus text: escaping, histograms, unknown values."""

from carico_agent.lib.net.metrics import Family, histogram, render


def test_labels_and_help_are_escaped() -> None:
    text = render([Family("x", "gauge", "two\nlines").add(1.5, name='a"b\\c\nd')])
    assert text == '# HELP x two\\nlines\n# TYPE x gauge\nx{name="a\\"b\\\\c\\nd"} 1.5\n'


def test_unknown_is_left_out() -> None:
    assert render([Family("x", "gauge", "h").add(None)]) == "\n"


def test_histogram_is_cumulative() -> None:
    text = render([histogram("h_seconds", "h", (0.1, 1.0), (3, 2, 1), 4.5)])
    assert 'h_seconds_bucket{le="0.1"} 3\n' in text
    assert 'h_seconds_bucket{le="1"} 5\n' in text
    assert 'h_seconds_bucket{le="+Inf"} 6\n' in text
    assert text.endswith("h_seconds_sum 4.5\nh_seconds_count 6\n")
