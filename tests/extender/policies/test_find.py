"""Policies are found by looking, and their tables are checked against their own Settings."""

from pathlib import Path

import pytest

from carico_agent.cli import main
from carico_agent.extender import policies
from carico_agent.extender.nodes import NodeState, PendingPod
from carico_agent.extender.policies.pod_capacity import PodCapacity
from carico_agent.settings import BadSettings

DROPPED = '''
"""anywhere: every node."""
from dataclasses import dataclass
from carico_agent.extender.policy import Policy, Reason

@dataclass(frozen=True)
class AnywhereSettings:
    """Where Pods may not go."""

    never: str = ""
    """Not to nodes while this is set."""

class Anywhere(Policy[AnywhereSettings]):
    """Every node suits."""

    name = "anywhere"
    Settings = AnywhereSettings

    def reasons(self, nodes, pod, now_s):
        if self.settings.never:
            yield Reason(nodes.assigned >= 0, "never")

    def scores(self, nodes, pod, now_s):
        return [0] * len(nodes)
'''


@pytest.fixture
def dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the folder is enough."""
    (tmp_path / "anywhere.py").write_text(DROPPED)
    (tmp_path / "_helper.py").write_text("raise AssertionError")
    monkeypatch.setattr(policies, "__path__", [*policies.__path__, str(tmp_path)])


@pytest.mark.usefixtures("dropped")
def test_a_policy_is_a_file() -> None:
    assert {"anywhere", "pod-capacity"} <= set(policies.find())
    assert policies.load("anywhere", {}).refusal(NodeState("a"), PendingPod("u"), 0.0) is None
    closed = policies.load("anywhere", {"anywhere": {"never": "today"}, "pod-capacity": {"least": 2}})
    assert closed.refusal(NodeState("a"), PendingPod("u"), 0.0) == "never"
    assert '[extender.policies.anywhere]\n# Not to nodes while this is set.\nnever = ""' in policies.describe()


def test_all_errors_come_at_once() -> None:
    with pytest.raises(BadSettings) as caught:
        policies.load("pod-capacty", {"pod-capacity": {"leats": 1, "starting_ratio": 2}, "none": {}})
    known = ", ".join(policies.find())
    assert caught.value.errors == [
        f"extender.policy: 'pod-capacty' is not one of {known}; did you mean pod-capacity?",
        "extender.policies.pod-capacity.leats: unknown key, did you mean least?",
        "extender.policies.pod-capacity.starting_ratio: 2 is not between 0 and 1",
        "extender.policies.none: no such policy",
    ]


def test_the_settings_of_the_chosen_one_are_used() -> None:
    chosen = policies.load("pod-capacity", {"pod-capacity": {"least": 2}})
    assert isinstance(chosen, PodCapacity) and chosen.settings.least == 2.0


def test_the_command_names_the_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[extender]\npolicy = "packd"\n')
    assert main(["extender", "--config", str(config), "--kubeconfig", "/nonexistent"]) == 2
    result = capsys.readouterr().err
    assert "vector-dot; did you mean packed?" in result and result.count("\n") == 1
