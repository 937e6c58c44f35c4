"""Issue 36: what made new users stumble: tracebacks, silence, and messages that name neither the cause nor the remedy."""

from collections.abc import Callable
from pathlib import Path

import pytest

from carico_agent.cli import main
from carico_agent.node.plugin_host.journal import Journal
from tests.conftest import AgentProcess

Start = Callable[..., AgentProcess]
REFUSES = """
from carico_agent.plugin_api import Refuse
from carico_plugins.throttling import Plugin as Shipped

class Plugin(Shipped):
    def start(self, view):
        raise Refuse("no cgroup v2 at the root")
"""


def test_throttling_says_why_its_plugin_refused(
    start_agent: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a KeyError."""
    (tmp_path / "site/throttling").mkdir(parents=True)
    (tmp_path / "site/throttling/__init__.py").write_text(REFUSES)
    config = tmp_path / "c.toml"
    config.write_text(f'[plugins]\nenabled = ["throttling"]\nsite_folder = "{tmp_path}/site"\n')
    process = start_agent("--config", str(config))
    process.wait(lambda agent: agent.request("GET", "/v1/plugins/throttling")["state"] == "refused")
    for flags in ([], ["--json"], ["web-*"]):
        assert main(["throttling", "--socket", process.socket, *flags]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "the throttling plugin does not run: refused: no cgroup v2 at the root" in printed.err


def test_the_journal_says_that_it_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It printed nothing, and `?` for what a record is."""
    path = tmp_path / "journal"
    assert main(["journal", "--journal", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: no journal, nothing was changed\n"
    path.touch()
    assert main(["journal", "--journal", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: empty, no value is changed now\n"
    assert main(["journal", "--journal", str(path), "--json"]) == 0
    assert capsys.readouterr().out == ""
    journal = Journal(path)
    journal.append("action", plugin="template")
    journal.close()
    assert main(["journal", "--journal", str(path)]) == 0
    assert "  action   plugin=template" in capsys.readouterr().out
