"""`carico plane solve`: the command, its exit codes and its errors."""

import json
import math
from pathlib import Path

import pytest

from carico_agent.cli import main
from tests.plane.test_sizing import FIGURE

ASKED = {"--requests": "60000", "--core-seconds": "300", "--window": "60", "--cores": "6", "--availability": "0.999"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "f.csv"
    path.write_text("".join(f"{x},{f}\n" for x, f in FIGURE))
    return path


def solve(table: Path, *more: str, **instead: str) -> int:
    asked = {**ASKED, **{f"--{key.replace('_', '-')}": value for key, value in instead.items()}}
    return main(["plane", "solve", "--table", str(table), *more, *(word for pair in asked.items() for word in pair)])


@pytest.mark.parametrize(
    ("cores", "seats", "queue", "wait_ms"), [("6", 9, 24, 8.863), ("6.63", 10, 15, 7.457), ("8", 17, 3, 6.997)]
)
def test_answers(table: Path, capsys, cores: str, seats: int, queue: int, wait_ms: float) -> None:
    assert solve(table, "--json", cores=cores) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["seats"], result["queue"], round(result["wait_ms"], 3)) == (seats, queue, wait_ms)
    assert 0 < result["reject_ratio"] <= 0.001


def test_in_words(table: Path, capsys) -> None:
    assert solve(table) == 0
    out = capsys.readouterr().out
    assert out.startswith("seats 9, queue 24: a request takes 8.863 ms")
    assert "queueLengthLimit: 4}" in out, "a level's field for it"


@pytest.mark.parametrize("mark", [";", "\t", " ", " ; "])
def test_other_separators(tmp_path: Path, capsys, mark: str) -> None:
    (tmp_path / "f.csv").write_text("".join(f"{x}{mark}{f}\n" for x, f in FIGURE))
    assert solve(tmp_path / "f.csv") == 0
    (tmp_path / "f.csv").write_text("x;f\n" + "".join(f"{x};{f}\n".replace(".", ",") for x, f in FIGURE))
    assert solve(tmp_path / "f.csv") == 0, "decimal commas, as a spreadsheet in Milan writes them"
    assert capsys.readouterr().out.count("seats 9, queue 24") == 2


def test_a_table_from_standard_input(table: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", table.open())
    assert solve(Path("-")) == 0
    assert "seats 9" in capsys.readouterr().out


def test_options_of_the_service_need_it(capsys) -> None:
    assert main(["plane", "--seats", "write"]) == 2
    assert "--serve" in capsys.readouterr().err
    assert main(["plane", "--listen", "127.0.0.1:0"]) == 2


def test_unsteady_is_reported(table: Path, capsys) -> None:
    assert solve(table, "--json", cores="4") == 1
    caught = capsys.readouterr()
    result = json.loads(caught.out)
    assert (result["seats"], result["queue"], result["steady"]) == (5, 12_000, False)
    assert result["reject_ratio"] == pytest.approx(0.2, abs=1e-6)
    assert all(math.isfinite(result[key]) for key in ("wait_ms", "reject_ratio"))
    assert "5 cores are needed, 4 can be used" in caught.err


def test_a_table_without_its_beginning_is_reported(tmp_path: Path, capsys) -> None:
    (tmp_path / "late.csv").write_text("5,4\n9,8\n")
    assert solve(tmp_path / "late.csv") == 0
    assert "begins at x = 5" in capsys.readouterr().err


def test_no_requests_no_recommendation(table: Path, capsys) -> None:
    assert solve(table, requests="0") == 1
    assert "no requests" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": "nan"},
        {"requests": "-1"},
        {"core_seconds": "many"},
        {"window": "0"},
        {"cores": "0"},
        {"cores": "inf"},
        {"availability": "1"},
        {"availability": "-0.5"},
    ],
    ids=str,
)
def test_wrong_numbers(table: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(SystemExit) as ended:
        solve(table, **wrong)
    assert ended.value.code == 2


@pytest.mark.parametrize("text", ["", "1,nan\n", "1,-1\n", "1,1\n1,2\n", "1|2\n", "\xff"])
def test_wrong_tables(tmp_path: Path, capsys, text: str) -> None:
    (tmp_path / "f.csv").write_bytes(text.encode("latin-1"))
    assert solve(tmp_path / "f.csv") == 2
    assert "f.csv: " in capsys.readouterr().err


def test_no_table(tmp_path: Path, capsys) -> None:
    assert solve(tmp_path / "none.csv") == 2
    assert "No such file" in capsys.readouterr().err
