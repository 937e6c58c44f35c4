"""`carico fit` on a node: the words, the exit code, a manifest, JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from carico_agent.cli import main
from carico_agent.node.commands import fit

WEB = {"fits": 5.2, "mode": "measured", "limiting": "cpu", "room": {"cpu": 0.65}, "sizes": {"cpu": 8.0}}
UNKNOWN = WEB | {"fits": 1.0, "mode": "learning"}
POD = "kind: Pod\nmetadata: {name: new, namespace: shop}\nspec: {containers: [{resources: {requests: {cpu: 2}}}]}\n"


class Agent:
    """Answers as an agent does that has seen shop/web only."""

    def request(self, method: str, path: str) -> dict[str, Any]:
        if path == "/v1/workloads":
            return {"workloads": [{"workload": name} for name in ("shop/web", "ops/queue", "redis-server")]}
        return WEB if path == "/v1/workloads/shop/web" else UNKNOWN


@pytest.fixture(autouse=True)
def agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "ask", lambda given: Agent())


def test_a_known_workload(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "shop/web", "--count", "5"]) == 0
    assert main(["fit", "shop/web", "--count", "6"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "5 × shop/web fits: room for 5.2, limited by cpu (measured)",
        "6 × shop/web does not fit: room for 5.2, limited by cpu (measured)",
    ]


def test_a_manifest_of_a_workload_that_has_not_run_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    assert main(["fit", "-f", str(file), "--count", "3", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["workload"], found["fit"], found["fits"], found["basis"]) == ("shop/new", False, 2.6, "requests")
    assert main(["fit", "-f", str(file)]) == 0
    assert "the answer uses its requests" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "suggested"),
    [("shop/wbe", "shop/web"), ("web", "shop/web"), ("redis-sever", "redis-server"), ("ml/train", "")],
)
def test_a_near_name_is_suggested(capsys: pytest.CaptureFixture[str], asked: str, suggested: str) -> None:
    main(["fit", asked])
    hint = [line for line in capsys.readouterr().out.splitlines() if "did you mean" in line]
    assert hint == ([f"  did you mean {suggested}?"] if suggested else [])


def test_neither_or_both(tmp_path: Path) -> None:
    assert (
        main(["fit"]) == main(["fit", "shop/web", "-f", "pod.yaml"]) == main(["fit", "shop/web", "--count", "0"]) == 2
    )
