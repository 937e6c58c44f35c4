"""The agent's own pace: slower when it costs too much or the node suffers, back when it is calm, without swinging."""

from math import nan

from carico_agent.lib.supervise.budget import LOOK_S, MAX_CALM_S, Allowance, Pace

FINE = {"cpu_ratio": 0.004, "resident_bytes": 60e6, "memory": 0.4}


def run(pace: Pace, seconds: float, start_s: float = 0.0, **measured: float) -> float:
    """Look every five seconds for so long; returns the time afterwards."""
    now_s = start_s
    while now_s < start_s + seconds:
        pace.observe(now_s, **{**FINE, **measured})
        now_s += LOOK_S
    return now_s


def test_one_bad_look_is_no_reason() -> None:
    pace = Pace(Allowance())
    for now_s in range(0, 100, 5):
        pace.observe(now_s, **{**FINE, "cpu_ratio": 0.5 if now_s % 10 else 0.001})
    assert pace.multiple == 1


def test_down_to_once_a_second_and_no_further() -> None:
    pace, seen = Pace(Allowance()), []
    for look in range(20):
        pace.observe(look * LOOK_S, **{**FINE, "cpu_ratio": 0.5})
        seen.append(pace.multiple)
    assert list(dict.fromkeys(seen)) == [1, 2, 5, 10]
    assert "50.0% of a core" in pace.why


def test_each_reason_is_reported() -> None:
    for measured, word in [
        ({"cpu_ratio": 0.2}, "of a core"),
        ({"resident_bytes": 500e6}, "500 MB"),
        ({"memory": 0.99}, "99% of its memory used"),
        ({"missed": 3}, "3 ticks missed"),
    ]:
        pace = Pace(Allowance())
        run(pace, 10, **measured)
        assert (pace.multiple, word in pace.why) == (2, True)


def test_it_comes_back_step_by_step() -> None:
    pace = Pace(Allowance())
    now_s = run(pace, 60, memory=1.0)
    assert pace.multiple == 10
    seen = []
    while pace.multiple > 1:
        now_s = run(pace, LOOK_S, now_s)
        seen.append(pace.multiple)
    assert list(dict.fromkeys(seen)) == [10, 5, 2, 1]
    assert pace.why == ""
    assert len(seen) * LOOK_S >= 3 * Allowance().calm_s


def test_it_does_not_come_back_to_what_it_cannot_afford() -> None:
    pace = Pace(Allowance(cpu_ratio=0.03))
    now_s = run(pace, 10, cpu_ratio=0.05)
    assert pace.multiple == 2
    run(pace, 7200, now_s, cpu_ratio=0.025)  # fits now, would be 5 % at the full rate
    assert pace.multiple == 2


def test_just_below_pressure_is_not_calm() -> None:
    pace = Pace(Allowance())
    now_s = run(pace, 10, memory=0.99)
    run(pace, 3600, now_s, memory=0.95)
    assert pace.multiple == 2


def test_relapses_make_it_patient() -> None:
    """A node that suffers whenever we sample fast: changes become rare."""
    pace, changes = Pace(Allowance()), []
    for look in range(int(86_400 / LOOK_S)):
        now_s = look * LOOK_S
        if pace.observe(now_s, **{**FINE, "memory": 0.99 if pace.multiple == 1 else 0.5}):
            changes.append(now_s)
    assert len(changes) < 70
    assert changes[-1] - changes[-3] >= MAX_CALM_S


def test_unknown_usage_is_no_pressure() -> None:
    pace = Pace(Allowance())
    run(pace, 100, memory=nan)
    assert pace.multiple == 1
