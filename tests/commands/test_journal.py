"""`carico journal`: each line begins with the time and the type of the record, as the journal file has it."""

from pathlib import Path

import pytest

from carico_agent.cli import main
from carico_agent.node.plugin_host.journal import encode


def test_each_line_begins_with_time_and_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = tmp_path / "journal"
    journal.write_bytes(encode({"event": "closed", "time": 0.0, "n": 1}))
    assert main(["journal", "--journal", str(journal)]) == 0
    assert capsys.readouterr().out == "1970-01-01 00:00:00  closed   n=1\n"
