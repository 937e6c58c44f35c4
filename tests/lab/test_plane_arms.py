"""The arms of lab/plane are what they are called, and a run that was interrupted goes on."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from carico_agent.plane.shares import RESERVE
from carico_agent.plane.sizing import queue_length_limit
from carico_agent.plane.whole import Given
from lab.plane.arms import ARMS, LEVELS, Arm, DocumentMethod
from lab.plane.parts import PARTS
from lab.plane.runs import PlaneRun, PlaneSetup, Rows, plan
from lab.support.kube_admin import AdminError

LOW = f"{LEVELS}/workload-low"


def mechanisms(arm: Arm) -> set[str]:
    return {field.name for field in fields(arm) if getattr(arm, field.name)}


def test_arms_that_are_compared_differ_in_what_their_names_say() -> None:
    """`weights` was compared with seats, `quotas` without: which of both won was not known."""
    assert {name: mechanisms(arm) for name, arm in ARMS.items()} == {
        "nothing": set(),
        "seats": {"seats"},
        "wrapper": {"wrapper"},
        "wrapper+seats": {"wrapper", "seats"},
        "weights": {"weights"},
        "seats+weights": {"seats", "weights"},
        "quotas": {"quotas"},
        "document": {"quotas", "sized", "wrapper"},
    }


class FakeLab:
    """Takes down what a loop writes."""

    def __init__(self) -> None:
        self.plane: Any = self
        self.groups = self.admin = self
        self.curve: list[tuple[float, float]] = []
        self.quotas: dict[str, float | None] = {}
        self.kept = "true"
        self.levels: dict[str, Any] = {LOW: {"limited": {"limitResponse": {"queuing": {"queueLengthLimit": 50}}}}}

    def metrics(self, part: str) -> str:
        return ""

    def periods(self, part: str) -> None:
        return None

    def quota(self, part: str, cores: float | None) -> None:
        self.quotas[part] = cores

    def get(self, path: str) -> Any:
        if path == LEVELS:
            return {"items": []}
        return {"spec": self.levels[path]}

    def post(self, path: str, body: Any) -> None:
        self.levels[f"{path}/{body['metadata']['name']}"] = body["spec"]

    def merge(self, path: str, body: Any) -> None:
        self.levels[path] = body["spec"]
        if path == LOW:
            self.kept = body["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"]

    def delete(self, path: str) -> None:
        if self.levels.pop(path, None) is None:
            raise AdminError(404, "")

    @property
    def queue(self) -> int:
        return int(self.levels[LOW]["limited"]["limitResponse"]["queuing"]["queueLengthLimit"])


GIVEN = {
    "kube-controller-manager": Given(0.1, "steady", 1.0),
    "kube-scheduler": Given(0.2, "steady", 1.0),
    "etcd": Given(0.3, "steady", 1.0, 4, 9),
    "kube-apiserver": Given(0.4, "steady", 1.0, 12, 100),
}


@pytest.mark.parametrize("order", [GIVEN, dict(reversed(GIVEN.items()))], ids=["order", "reversed"])
@pytest.mark.parametrize("sized", [False, True], ids=["quotas", "document"])
def test_each_part_gets_its_own_cores_and_only_the_document_sizes_the_server(
    order: dict[str, Given], sized: bool
) -> None:
    """The parts were unpacked in another order than they were packed: etcd got the API server's cores."""
    lab = FakeLab()
    loop = DocumentMethod(lab, sized)
    loop.apply(order)
    assert lab.quotas == {name: one.cores for name, one in GIVEN.items()} and set(lab.quotas) == set(PARTS)
    assert (f"{LEVELS}/{RESERVE}" in lab.levels) is sized
    assert lab.queue == (queue_length_limit(100) if sized else 50)
    assert lab.kept == ("false" if sized else "true"), "or the API server writes its own length back"
    loop.apply(order)
    loop.stop()
    assert f"{LEVELS}/{RESERVE}" not in lab.levels and (lab.queue, lab.kept) == (50, "true"), (
        "what was there before is there again"
    )


def test_nothing_competes_changes_nothing() -> None:
    lab = FakeLab()
    DocumentMethod(lab, True).apply("0.30 of 1 cores are needed, less than 70%: nothing competes")
    assert lab.quotas == {} and list(lab.levels) == [LOW]


def test_every_repeat_has_all_arms_in_an_order_of_its_own() -> None:
    runs = plan(list(ARMS), [0.6, 0.9, 1.2], 5)
    blocks = [[(run.arm, run.load) for run in runs if run.repeat == n] for n in range(5)]
    assert all(sorted(block) == sorted(blocks[0]) and len(set(block)) == 24 for block in blocks)
    assert len({tuple(block) for block in blocks}) == 5
    assert plan(list(ARMS), [0.6, 0.9, 1.2], 3) == runs[:72], "more repeats leave the first ones as they are"


def test_an_interrupted_run_goes_on_with_its_saturation(tmp_path: Path) -> None:
    path, setup = tmp_path / "rows.json", PlaneSetup(code="a")
    path.write_text(json.dumps([{"arm": "seats", "load": 1.2, "repeat": 0, "setup": None}]))
    rows, runs = Rows(path, setup), plan(["nothing", "seats"], [0.9], 2)
    assert rows.missing(runs) == runs and rows.calibration() is None
    rows.keep(runs[0], {"saturation": 300.0, "curve": [(1, 0.5)], "closed": {"64": 300.0}})
    again = Rows(path, setup)
    assert again.missing(runs) == runs[1:]
    assert again.calibration() == (300.0, [(1, 0.5)], {64: 300.0})
    assert len(again.all()) == 1, "rows of other code are not mixed with these"
    assert Rows(path, PlaneSetup(code="b")).missing(runs) == runs


def test_a_repeat_is_a_run_of_its_own() -> None:
    assert PlaneRun("nothing", 0.9, 0) != PlaneRun("nothing", 0.9, 1)
