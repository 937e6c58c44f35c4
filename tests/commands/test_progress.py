"""`carico progress`: bars for people, JSON for scripts, a word where there is nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from carico_agent.cli import main
from carico_agent.progress.commands.progress import view
from tests.conftest import AgentProcess


def job(name: str, **more: Any) -> dict[str, Any]:
    known = {"namespace": "ml", "name": name, "ratio": 0.5, "left_cpu_s": 90.0, "cores": 0.5, "left_s": 180.0}
    return {**known, "uncertain": False, "stale": False, **more}


def test_the_job_with_max_work_left_stands_first_and_all_are_summed_up() -> None:
    long = job("long", left_cpu_s=4000.0, ratio=0.1)
    unknown = job("new", left_cpu_s=None, left_s=None, cores=None, stale=True, ratio=0.02)
    lines = view({"jobs": [job("short"), unknown, long], "socket": "s"})
    assert [line.split()[0] for line in lines[1:4]] == ["ml/long", "ml/short", "ml/new"]
    assert "██░░░░░░░░░░░░░░░░░░  10%" in lines[1]
    assert lines[3].endswith("? stale".replace(" ", "  "))
    assert lines[-1] == "2 of 3 jobs known, 1h 08m of CPU left in all"
    assert len({line.index("%") for line in lines[1:4]}) == 1  # one column


def test_names_of_any_length_keep_the_columns() -> None:
    short, long = view({"jobs": [job("a"), job("b" * 300)], "socket": "s"})[1:3]
    assert len(short) == len(long)


def test_without_jobs_it_says_where_they_report(start_agent: Any, roomy: list[str], capsys: Any) -> None:
    process: AgentProcess = start_agent(*roomy)
    process.wait()
    assert main(["progress", "--socket", process.socket]) == 0
    folder = Path(process.socket).parent
    assert f"no job reports its progress; jobs report at {folder}/progress/progress.sock" in capsys.readouterr().out
    assert main(["progress", "--json", "--socket", process.socket]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == []


def test_without_an_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["progress", "--socket", str(tmp_path / "none.sock")]) == 1
    assert "is `carico agent` running?" in capsys.readouterr().err
