"""Which Pods `carico recommend apply` would resize, and the journal that takes everything back."""

import json
from pathlib import Path
from typing import Any

import pytest

from carico_agent.cli import main
from carico_agent.recommend.advice import Advice, Recommendation
from carico_agent.recommend.apply.applier import is_ours, trouble
from carico_agent.recommend.apply.decide import (
    ELSEWHERE,
    FITS,
    NOTHING,
    REFUSED,
    WAITS,
    ApplyRules,
    LiveContainer,
    LivePod,
    PodResize,
    ResizeRoom,
    decide,
)
from carico_agent.recommend.apply.journal import BadJournal, OpenChange, ResizeJournal
from carico_agent.recommend.workload import OwnerObject

GIB = 2.0**30
WEB = OwnerObject("shop", "Deployment", "web")
RULES = ApplyRules()


def pod(name: str = "web-1", cpu: float = 1.0, qos: str = "Burstable", **more: Any) -> LivePod:
    limits = {"cpu": cpu, "memory": GIB} if qos == "Guaranteed" else more.pop("limits", {})
    pending = more.pop("pending", "")
    app = LiveContainer("app", {"cpu": cpu, "memory": GIB}, limits, **more)
    return LivePod("shop", name, f"uid-{name}", "n", WEB, qos, {"app": app}, pending)


def row(cpu: float | None, memory: float | None = GIB, **more: Any) -> Recommendation:
    values = {"confidence_days": 3.0, "throttled_ratio": 0.0, "oom_kills": 0, **more}
    return Recommendation(WEB, "app", (), Advice(cpu, ()), Advice(memory, ()), 300, **values)


def room(free: float, measured: float = 4.0, cores: float = 4.0) -> dict[str, ResizeRoom]:
    have = {"cpu": cores, "memory": 8 * GIB}
    return {"n": ResizeRoom(have, {"cpu": cores - free, "memory": 0.0}, {"cpu": measured, "memory": 8 * GIB})}


def answer(to: float, rooms: dict[str, ResizeRoom], one: LivePod | None = None, rules: ApplyRules = RULES) -> PodResize:
    (found,) = decide([row(to)], [one or pod()], rooms, rules)
    return found


def test_room_decides() -> None:
    assert answer(2.0, room(free=2.0)).verdict == FITS
    by_requests = answer(2.0, room(free=0.5))
    assert by_requests.verdict == WAITS and by_requests.why == "cpu: 500m free by requests, 1 more are needed"
    by_use = answer(2.0, room(free=3.0, measured=0.25))
    assert by_use.verdict == WAITS and by_use.why == "cpu: 250m free as measured, 1 more are needed"
    assert answer(5.0, room(free=3.0)).verdict == ELSEWHERE
    assert answer(0.6, room(free=0.0, measured=0.0)).verdict == FITS  # what is lowered always fits
    assert answer(2.0, {}).verdict == REFUSED


def test_room_is_given_away_once() -> None:
    found = decide([row(2.0)], [pod("web-1"), pod("web-2"), pod("web-3")], room(free=2.0), RULES)
    assert [one.verdict for one in found] == [FITS, FITS, WAITS]


def test_small_changes_and_large_cuts() -> None:
    assert answer(1.05, room(2.0)).verdict == NOTHING
    assert answer(0.1, room(2.0)).after == {"app": {"requests": {"cpu": "500m"}}}  # half at a time
    assert answer(3.5, room(3.0)).after == {"app": {"requests": {"cpu": "3500m"}}}  # a raise at once


def test_limits_follow_where_they_must() -> None:
    assert answer(2.0, room(2.0), pod(qos="Guaranteed")).after["app"]["limits"] == {"cpu": "2"}
    raised = answer(2.0, room(2.0), pod(limits={"cpu": 1.5}))
    assert raised.after["app"]["limits"] == {"cpu": "2"} and raised.before["app"]["limits"] == {"cpu": "1500m"}
    assert "limits" not in answer(2.0, room(2.0), pod(limits={"cpu": 3.0})).after["app"]


def test_what_is_refused() -> None:
    restarts = pod(restarts_for=frozenset({"cpu"}))
    assert "resizePolicy restarts app (cpu)" in answer(2.0, room(2.0), restarts).why
    assert answer(2.0, room(2.0), restarts, ApplyRules(restarts=True)).verdict == FITS
    assert "an earlier resize waits (Deferred)" in answer(2.0, room(2.0), pod(pending="Deferred")).why
    (scaled,) = decide([row(2.0, hpa="HPA web scales by 80 %")], [pod()], room(2.0), RULES)
    assert scaled.verdict == REFUSED and "--allow-hpa" in scaled.why
    assert "7 are asked for" in answer(2.0, room(2.0), rules=ApplyRules(min_confidence_days=7)).why
    (alone,) = decide([row(2.0)], [pod()], room(2.0), RULES, {"uid-web-1": "rolled back: app was OOM-killed"})
    assert alone.verdict == REFUSED and "rolled back" in alone.why


def entry(original: str, ours: str) -> OpenChange:
    before, after = ({"app": {"requests": {"cpu": one}}} for one in (original, ours))
    return OpenChange("shop", "web-1", "uid-web-1", "shop/web", before, after, restarts={"app": 0})


def test_the_journal_keeps_the_first_original_across_restarts(tmp_path: Path) -> None:
    file = tmp_path / "deep/j.jsonl"
    journal = ResizeJournal(file)
    journal.changing(entry("4", "2"), "")
    earlier = journal.changing(entry("2", "1"), "")
    again = ResizeJournal(file)
    assert again.open["uid-web-1"].original == {"app": {"requests": {"cpu": "4"}}}
    journal.refused("uid-web-1", earlier, "no")
    assert ResizeJournal(file).open["uid-web-1"].ours == {"app": {"requests": {"cpu": "2"}}}
    with file.open("a") as torn:
        torn.write('{"event": "chan')
    assert list(ResizeJournal(file).open) == ["uid-web-1"]
    journal.closed("uid-web-1", "restored", "stopped")
    assert not ResizeJournal(file).open
    file.write_text("what\n" + file.read_text())
    with pytest.raises(BadJournal, match="line 1 cannot be read"):  # that is no torn end
        ResizeJournal(file)


def test_what_counts_as_trouble() -> None:
    change = entry("2", "1")
    assert is_ours(pod(cpu=1.0), change.ours) and not is_ours(pod(cpu=3.0), change.ours)
    assert trouble(pod(restarts=1, oom_killed=True), change, []) == "app was OOM-killed"
    assert trouble(pod(restarts=1), change, []) == ""  # it ended otherwise
    assert "infeasible" in trouble(pod(pending="Infeasible"), change, [])
    assert trouble(pod(), change, [row(1.0, throttled_ratio=0.3)]) == "throttled in 30% of its periods, 0% before"
    assert "a process" in trouble(pod(), change, [row(1.0, oom_kills=1)])


def test_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words, said in (
        (["--yes"], "--yes: only with `carico recommend apply`"),
        (["apply", "a", "b"], "one workload or pattern is expected"),
        (["apply", "--max-step", "0"], "--max-step: above 0"),
        (["apply", "-o", "patch"], "apply: --output table or json"),
    ):
        assert main(["recommend", *words]) == 2
        assert said in capsys.readouterr().err
    missing = tmp_path / "none"
    assert main(["recommend", "apply", "--restore", "--kubeconfig", str(missing)]) == 1
    assert json.dumps(str(missing))[1:-1] in capsys.readouterr().err
