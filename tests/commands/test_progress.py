"""`carico progress`: bars for people, JSON for scripts, a word where there is nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from carico_agent.cli import main
from carico_agent.lib.kube.names import STATUS
from carico_agent.progress.cluster import jobs_of
from carico_agent.progress.commands.progress import view, view_all
from tests.conftest import AgentProcess


def job(name: str, **more: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "namespace": "ml",
        "name": name,
        "ratio": 0.5,
        "left_cpu_s": 90.0,
        "cores": 0.5,
        "left_s": 180.0,
    }
    known |= {"job": "", "left_low_s": 170.0, "left_high_s": 200.0, "per_s": 0.5, "end": None, "source": "cpu"}
    known |= {"done": 5.0, "total": 10.0, "runs": 1, "age_s": 1.0}
    return {**known, "uncertain": False, "stale": False, "ended": False, **more}


def test_the_job_that_ends_last_stands_first_and_all_are_summed_up() -> None:
    long = job("long", left_cpu_s=4000.0, left_s=8000.0, ratio=0.1)
    unknown = job("new", left_cpu_s=None, left_s=None, cores=None, stale=True, ratio=0.02)
    lines = view({"jobs": [job("short"), unknown, long], "socket": "s"})
    assert [line.split()[0] for line in lines[1:4]] == ["ml/long", "ml/short", "ml/new"]
    assert "██░░░░░░░░░░░░░░░░░░  10%" in lines[1]
    assert lines[3].endswith("? stale: silent")
    assert "2m 50s to 3m 20s" in lines[2]
    assert lines[-1] == "2 of 3 jobs known, 1h 08m of CPU left in all"
    assert len({line.index("%") for line in lines[1:4]}) == 1  # one column


def test_the_pods_of_one_job_are_one_row() -> None:
    pods = [job(f"train-{n}", job="train", left_s=100.0 * n, done=1.0 * n) for n in range(1, 4)]
    lines = view({"jobs": [*pods, job("alone")], "socket": "s"})
    assert [line.split()[0] for line in lines[1:-2]] == ["ml/train", "ml/alone"]
    assert "(3 Pods)" in lines[1]
    assert " 20% " in lines[1]  # 6 of 30
    assert "5m 00s" in lines[1]  # the last of them


def test_the_whole_cluster() -> None:
    work = {"jobs": 2, "sum_s": 90.0, "top": [["ml/a", 0.25, "2026-01-01T00:00:00Z"], ["ml/b", 0.5, ""]]}
    texts = [json.dumps({"time": "2026-01-01T00:00:00Z", "work": work}), "{}", "[1", '{"work": {"jobs": "x"}}']
    nodes = [{"metadata": {"name": f"n{at}", "annotations": {STATUS: text}}} for at, text in enumerate(texts)]
    lines = view_all(jobs_of([*nodes, {"metadata": {"name": "bare"}}]))
    assert [line.split()[:2] for line in lines[1:]] == [["n0", "ml/a"], ["n0", "ml/b"]]
    assert "no node of this cluster" in view_all([])[0]


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
