"""The lab's packing against table A.4; every cell is in lab/results/packing.md, here are those that decide."""

import json

import pytest

from lab.packing.__main__ import main, simulate
from lab.packing.table import TableCell, measured, reference, report

CELLS = {(c.generator, c.d, c.a, c.policy): c for c in reference()}


def test_the_table_is_complete() -> None:
    assert len(CELLS) == 9 * 13 * 5 + 3 * 13 * 2
    assert CELLS["split", 2, 10, "VD"].source == 103.680667
    assert CELLS["uniform", 8, 9, "KM"].source > CELLS["uniform", 8, 9, "FF"].source


@pytest.mark.parametrize(
    ("generator", "d", "a"), [("split", 2, 2), ("split", 4, 5), ("uniform", 4, 5), ("exp", 2, 5), ("exp", 8, 2)]
)
@pytest.mark.parametrize("policy", ["FF", "KL", "KM", "PP", "VD"])
def test_means_agree_with_the_source(generator: str, d: int, a: int, policy: str) -> None:
    cell = measured(CELLS[generator, d, a, policy], 100, 11)
    assert abs(cell.deviation) <= 4.0 or cell.holds, cell


def test_the_combination_has_neither_weakness() -> None:
    gain = {
        a: simulate("KVD", "split", a, 2, 100, 11)["mean"] - simulate("KM", "split", a, 2, 100, 11)["mean"]
        for a in (2, 10)
    }
    assert 0.5 <= gain[2] <= 1.1 and -1.6 <= gain[10] <= -0.8, gain


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--policy", "VD", "--generator", "split", "--a", "7", "--d", "3", "--lists", "10", "--seed", "5"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert main(arguments) == 0
    assert first == capsys.readouterr().out and set(json.loads(first)) == {"mean", "standard_error"}
    assert main(["--a", "1"]) == 2
    with pytest.raises(SystemExit) as ended:
        main(["--policy", "XX"])
    assert ended.value.code == 2 and "KVD" in capsys.readouterr().err


def test_a_report_names_what_is_outside() -> None:
    cells = [TableCell(c.generator, c.d, c.a, c.policy, c.source, c.source, 0.1) for c in CELLS.values()]
    cells[0] = TableCell(cells[0].generator, cells[0].d, cells[0].a, cells[0].policy, 100.0, 101.0, 0.1)
    text = report(cells, 100, 1)
    assert f"{len(cells) - 1} of {len(cells)} cells" in text and "(+10.0 σ)" in text
