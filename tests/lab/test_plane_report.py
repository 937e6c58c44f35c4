"""The report of lab/plane says what was measured, also where a goal is missed or nothing finished."""

from pathlib import Path
from typing import Any

from lab.plane.report import text


def row(arm: str, p99: float | None, per_s: float, sent: float = 120.0, **rejected: float) -> dict[str, Any]:
    latency = {} if p99 is None else {"PATCH": {"n": 9, "mean": 1.0, "p50": p99 / 2, "p99": p99}}
    return {
        "arm": arm,
        "load": 1.2,
        "when": "2026-01-01T00:00:00+00:00",
        "saturation": 100.0,
        "curve": [(0, 0.1), (4, 0.9)],
        "leases": {"latency_ms": latency},
        "pods": {"start_ms": None},
        "greedy": {"sent_per_s": sent, "ok_per_s": per_s, "latency_ms": {"GET": {"p50": 1, "p99": 2}}},
        "rejected": rejected,
        "cores": {"etcd": 0.25, "kube-apiserver": 0.75},
        "seats": {"levels": {"a": 3, "b": 4}} if arm.startswith("seats") else None,
        "own": {"cpu_s": 1.0, "resident_bytes": 50e6} if arm.startswith("seats") else None,
        "kubernetes": {"requests": 20},
        "period": {"cpu_s": 0.06, "requests": 4.0} if arm.startswith("seats") else None,
    }


def test_goals_with_what_was_measured() -> None:
    rows = [
        row("nothing", 1000, 100),
        row("seats", 700, 90, **{"workload-low": 50, "system": 3}),
        row("seats+weights", None, 80),
        row("document", 400, 85),
        row("wrapper", 13_000, 100),
    ]
    result = text(rows, Path("figure.png"), "machine")
    assert "over without: **0.70** (goal at 1.2: ≤ 0.5)" in result
    assert "the first goal is missed" in result
    assert "to all clients, with seats over without: **0.90** (goal: ≥ 0.95)" in result
    assert "outside the greedy client's level, with seats: **3** (goal: 0)" in result
    assert "the throughput goal is missed" in result and "(1.00 and 1.00 cores), but 53 requests" in result
    assert "| seats | 350 / 700 | 120 (1.20 ×), 90 |" in result and "| 3 | 7 |" in result, (
        "rejections of other levels only"
    )
    assert "- document over nothing: p99 of Lease writes **0.40**, answers per second **0.85**\n" in result
    assert "- seats+weights over nothing: p99 of Lease writes unknown, answers per second **0.80**\n" in result
    assert "wrapper over nothing: p99 of Lease writes **13.00**" in result and "**Leases became slower**" in result
    assert "60 ms of CPU and 4.0 requests" in result and "**0.10%** of a core" in result and "**50 MB**" in result
    assert "0.50 requests per 10 s besides the metrics" in result


def test_of_several_runs_the_median_is_shown() -> None:
    runs = [(900, 0), (1000, 1), (5000, 2)]
    rows = [row("nothing", p99, 100) | {"repeat": n} for p99, n in runs]
    rows += [row("seats", p99 / 2, 100) | {"repeat": n} for p99, n in runs]
    result = text(rows, Path("figure.png"), "machine")
    assert "3 runs per arm, in random order" in result and "| nothing | 500 / 1000 |" in result


def test_repeats_are_compared_in_pairs_with_an_interval() -> None:
    """The machine became ten times as slow in the third repeat: that falls on both arms of it."""
    runs = [(900, 0), (1000, 1), (10_000, 2)]
    rows = [row("nothing", p99, 100) | {"repeat": n} for p99, n in runs]
    rows += [
        row("wrapper", p99 * factor, 100) | {"repeat": n} for (p99, n), factor in zip(runs, (2, 3, 4), strict=True)
    ]
    result = text(rows, Path("figure.png"), "machine")
    assert "| wrapper | 2.88 (2.00 to 4.00) | 1.00 (1.00 to 1.00) | unknown |" in result
    assert "over nothing, in the same repeat" not in text(rows[:2] + rows[3:5], Path("f.png"), "m"), (
        "two are no interval"
    )


def test_what_a_closed_loop_got_with_so_few_requests_is_a_hint() -> None:
    seats = row("seats", 400, 80) | {"closed": {"2": 90.0, "4": 95.0, "64": 100.0}}
    seats["seats"] = {"levels": {"workload-low": 5}}
    result = text([row("nothing", 1000, 100), seats], Path("figure.png"), "machine")
    assert "4 workers in a closed loop got 95 of 100 answers per second (0.95); 5 seats" in result


def test_without_a_comparison_there_is_no_verdict() -> None:
    assert "goal at" not in text([row("seats", 10, 1)], Path("f.png"), "m")


def test_a_load_that_was_not_sent_proves_nothing() -> None:
    rows = [
        row("nothing", 1000, 100),
        row("seats", 100, 100, sent=91.0),
        row("seats+weights", 1, 1),
        row("quotas", 2, 1),
    ]
    result = text(rows, Path("f.png"), "m")
    assert "not a test of the goals**: seats did not get 1.2 × saturation" in result
    assert "win" not in result and "missed" not in result
