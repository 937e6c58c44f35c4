"""All components at once: idle, steady, local-unsteady, global-unsteady, throttled, and no further than one step."""

import json
from pathlib import Path

import pytest

from carico_agent.cli import main
from carico_agent.plane.allocation import Component, SchedulerLoad, split
from carico_agent.plane.curve import Curve
from carico_agent.plane.queueing import Load
from carico_agent.plane.sizing import NoRecommendation
from carico_agent.plane.whole import ComponentWindow, Given, allocate

CURVE = Curve.of([(0, 0.1), (1, 0.9), (4, 2.8), (20, 4)])
API = ComponentWindow(Load(6000, 60, 60), CURVE)
ETCD = ComponentWindow(Load(9000, 30, 60), Curve.of([(0, 0), (8, 8)]))
SCHEDULER = ComponentWindow(Load(600, 40, 60), waiting=3000)
CONTROLLER = ComponentWindow(Load(1200, 12, 60))
ALL = {"kube-apiserver": API, "etcd": ETCD, "kube-scheduler": SCHEDULER, "kube-controller-manager": CONTROLLER}


def given(parts: dict[str, ComponentWindow], cores: float, **more: float) -> dict[str, Given]:
    found = allocate(parts, cores, 0.999, **more)
    assert isinstance(found, dict), found
    return found


def test_nothing_competes() -> None:
    assert "nothing competes" in str(allocate(ALL, 8.0, 0.999))


def test_steady_components_share_as_equation_9_says() -> None:
    found = given(ALL, 3.2)
    assert found["kube-controller-manager"].cores == pytest.approx(0.2), "(5) with equal weights: c'/Δt"
    (a, e), s = split(
        [Component(API.load, CURVE), Component(ETCD.load, ETCD.curve)], SchedulerLoad(SCHEDULER.load, 3000), 3.0, 0.999
    )
    assert [found[name].cores for name in ("kube-apiserver", "etcd", "kube-scheduler")] == pytest.approx([a, e, s])
    assert sum(one.cores for one in found.values()) == pytest.approx(3.2)
    assert found["kube-apiserver"].seats is not None and found["kube-scheduler"].seats is None


def test_the_schedulers_requests_are_taken_out() -> None:
    """(6) with S = 0: half of the API server's requests came from it."""
    half = ComponentWindow(Load(6000, 60, 60), CURVE, from_scheduler=3000)
    alone = given({"kube-apiserver": half}, 0.6, busy_ratio=0.0)["kube-apiserver"]
    as_is = given({"kube-apiserver": ComponentWindow(Load(3000, 30, 60), CURVE)}, 0.6, busy_ratio=0.0)["kube-apiserver"]
    assert alone == as_is and alone.state == "steady"


def test_idle_components_keep_their_request() -> None:
    found = given({**ALL, "kube-scheduler": ComponentWindow(Load(0, 3, 60), min_cores=0.25)}, 2.2)
    assert (found["kube-scheduler"].cores, found["kube-scheduler"].state) == (0.25, "idle")
    assert sum(one.cores for one in found.values()) <= 2.2 + 1e-9
    busy = given({**ALL, "kube-scheduler": ComponentWindow(Load(0, 30, 60), min_cores=0.25)}, 2.2)
    assert busy["kube-scheduler"].cores == 0.5, "it uses more than it asked for"


def test_a_local_unsteady_component_gets_what_its_load_needs() -> None:
    """Its curve never reaches the load: c/Δt all the same, for the curve may be wrong."""
    slow = ComponentWindow(Load(6000, 150, 60), Curve.of([(0, 0.1), (10, 2.0), (50, 1.5)]))
    found = given({"kube-apiserver": slow, "etcd": ETCD}, 4.0)
    one = found["kube-apiserver"]
    assert (one.state, one.cores, one.seats) == ("local-unsteady", pytest.approx(2.5), 10)
    assert one.queue == pytest.approx(6000 * 30 / 150, abs=1), "(15): what is left of one window"
    assert found["etcd"].state == "steady"


def test_too_much_for_all_is_shared_in_proportion() -> None:
    found = given(ALL, 1.3)
    assert {one.state for one in found.values()} == {"global-unsteady"}
    assert [found[name].cores for name in ALL] == pytest.approx([1.3 * c / 142 for c in (60, 30, 40, 12)])


def test_throttled_components_get_more_and_no_step_is_too_long() -> None:
    tight = {
        **ALL,
        "etcd": ComponentWindow(ETCD.load, ETCD.curve, throttled=0.8),
        "kube-scheduler": ComponentWindow(SCHEDULER.load, waiting=3000, throttled=0.1),
    }
    before, after = given(ALL, 3.2), given(tight, 3.2)
    lent = 0.1 * before["kube-scheduler"].cores
    assert after["etcd"].cores == pytest.approx(before["etcd"].cores + lent)
    assert (after["etcd"].weight, after["kube-apiserver"].weight) == (2, 1)
    held = given({**ALL, "kube-scheduler": ComponentWindow(SCHEDULER.load, waiting=3000, now_cores=0.1)}, 3.2)
    assert held["kube-scheduler"].cores == pytest.approx(min(0.1 + 0.2 * 3.2, before["kube-scheduler"].cores))


def test_refused() -> None:
    with pytest.raises(NoRecommendation, match="no components"):
        allocate({}, 2, 0.999)
    with pytest.raises(NoRecommendation, match="none are left"):
        allocate({**ALL, "kube-scheduler": ComponentWindow(Load(0, 0, 60), min_cores=9)}, 2, 0.999)


# ---- the command


FILE = """
[kube-apiserver]
requests = 6000
core_seconds = 60
table = "f.csv"

[etcd]
requests = 9000
core_seconds = 30

[kube-scheduler]
requests = 600
core_seconds = 40
waiting = 3000
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "f.csv").write_text("0,0.1\n1,0.9\n4,2.8\n20,4\n")
    (tmp_path / "plane.toml").write_text(FILE)
    return tmp_path / "plane.toml"


def test_the_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plane", "solve", "--components", str(file), "--cores", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["components"]
    assert sum(row["cores"] for row in rows.values()) == pytest.approx(3)
    assert rows["kube-scheduler"]["pods_per_s"] > 0
    assert main(["plane", "solve", "--components", str(file), "--cores", "3"]) == 0
    assert "kube-scheduler" in capsys.readouterr().out
    assert main(["plane", "solve", "--components", str(file), "--cores", "30"]) == 0
    assert "nothing competes" in capsys.readouterr().out
    assert main(["plane", "solve", "--components", str(file), "--cores", "1"]) == 1, "unsteady"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[kubelet]\nrequests = 1\ncore_seconds = 1\n", "kubelet: unknown"),
        ("[etcd]\nrequests = 1\n", "etcd.core_seconds is missing"),
        ("[etcd]\nrequests = 'x'\ncore_seconds = 1\n", "etcd.requests: a number"),
        ("[etcd]\nrequests = 1\ncore_seconds = 1\nseats = 4\n", "etcd.seats: unknown"),
        ("[etcd\n", "plane.toml"),
    ],
)
def test_a_wrong_file(file: Path, capsys: pytest.CaptureFixture[str], text: str, why: str) -> None:
    file.write_text(text)
    assert main(["plane", "solve", "--components", str(file), "--cores", "3"]) == 2
    assert why in capsys.readouterr().err


def test_one_of_both_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plane", "solve", "--cores", "3"]) == 2
    assert "--table" in capsys.readouterr().err
