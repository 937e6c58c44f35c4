"""lab.traces: the baselines say what their papers say, the truth is the truth, and what is not there is skipped."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lab.traces.baselines import BASELINES, max_of, n_sigma, now, persistence, rc_like
from lab.traces.data import SETS, Missing, TraceSet, synthetic
from lab.traces.report import best_of_field, loss, of, short
from lab.traces.run import TraceCase, TracedNode, cases, moments, pinball
from tests.conftest import TREE

USAGE = np.array([[0.1, 0.2, 0.3], [0.1, 0.1, 0.1]])
LIMIT = np.array([0.6, 0.4])


def test_now_and_persistence() -> None:
    assert now(USAGE, LIMIT, 3) == pytest.approx(0.4)
    assert persistence(np.array([[0.5, 0.2], [0.1, 0.1]]), LIMIT, 2) == pytest.approx(0.6)


def test_n_sigma_counts_cold_tasks_at_their_limit_and_warm_ones_by_mean_and_deviation() -> None:
    assert n_sigma(5)(USAGE, LIMIT, 12) == pytest.approx(1.0)  # three slots: both are cold
    hours = np.tile([[0.1, 0.3]], (1, 12))  # 24 slots, mean .2, sd .1
    warm = np.vstack([hours, np.full((1, 24), np.nan)])
    warm[1, -1] = 0.1  # has just started
    assert n_sigma(2)(warm, LIMIT, 12) == pytest.approx(0.4 + min(1.0, (0.2 + 2 * 0.1) / 0.6) * 0.6)


def test_rc_like_sums_percentiles_of_the_last_day() -> None:
    rng = np.random.default_rng(1)
    usage = rng.uniform(0, 0.4, (2, 400))
    usage[1, 300:310] = np.nan
    known = [usage[0, -288:], usage[1, -288:][~np.isnan(usage[1, -288:])]]
    assert rc_like(99)(usage, LIMIT, 12) == pytest.approx(sum(np.percentile(one, 99) for one in known))
    both = max_of(n_sigma(5), rc_like(99))(usage, LIMIT, 12)
    assert both == max(n_sigma(5)(usage, LIMIT, 12), rc_like(99)(usage, LIMIT, 12))


def test_the_truth_is_the_peak_of_those_that_run_now() -> None:
    usage = np.array([[0.1, 0.1, 0.5, 0.1], [0.2, 0.3, np.nan, np.nan]])
    node = TracedNode(1, None, usage, LIMIT)  # type: ignore[arg-type]
    assert node.truth(1) == pytest.approx(0.5)  # of the second task nothing is left then
    assert node.truth(0) == pytest.approx(0.4)


def test_pinball() -> None:
    assert pinball(np.array([1.0, 0.0]), np.array([0.0, 1.0]), 0.95).tolist() == pytest.approx([0.95, 0.05])


def test_a_set_that_is_not_there_says_which_file_would_bring_it(tmp_path: Path) -> None:
    for name in SETS:
        with pytest.raises(Missing, match=r"\.npz is not there"):
            SETS[name](tmp_path)
    command = [sys.executable, "-m", "lab.traces", "--data", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=TREE)
    assert said.returncode == 0
    assert said.stdout.count("skipped") >= len(set(SETS) - {"bitbrains-07-memory"})


@pytest.fixture(scope="module")
def questions() -> list[TraceCase]:
    traces = synthetic(seed=5, count=20, days=12)
    return [one for number, rows in enumerate(traces.nodes(20, None)) for one in cases(traces, number, rows, 37)]


def test_on_days_that_repeat_the_outlook_beats_the_field(questions: list[TraceCase]) -> None:
    day = of(questions, "24 h")
    assert loss(day, "carico") < 0.7 * best_of_field(day)
    assert short(day, "carico") <= 0.03
    assert loss(day, "carico") < 0.3 * loss(day, "now")


def test_on_the_first_day_the_outlook_is_no_worse_than_rc_like(questions: list[TraceCase]) -> None:
    first = of(questions, "24 h", 0, 288)
    assert first
    assert loss(first, "carico") <= loss(first, "RC-like")


def test_the_outlook_sees_nothing_of_the_future() -> None:
    """With another future the same past gives the same answer."""
    traces = synthetic(seed=6, count=10, days=4)
    changed = traces.usage.copy()
    changed[:, 2 * 288 + 1 :] = 0.9
    other = TraceSet("changed", changed, traces.limit, traces.start_t)
    said = []
    for one in (traces, other):
        node = next(moment for moment in moments(one, np.arange(10), 1, first=2 * 288) if moment.slot == 2 * 288)
        said.append(node.outlook.peak(86400.0))
    assert said[0] == said[1]


def test_the_field_is_whole() -> None:
    assert set(BASELINES) == {"now", "persistence", "N-sigma", "RC-like", "max of both"}
