"""The same seeds give the same tables, byte for byte, whatever the order of a set or the process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.experiments.common import Section
from lab.report import ALL, ALONE, QUICK, experiments, made_with, save, saved
from lab.support.code_hash import code_hash, files_of

TABLES = """
from lab.experiments import calibration, scenarios
from lab.experiments.common import Section
from lab.experiments.headline import _table
from lab.sim.engine import Setup, run
from lab.sim.schedulers.carico import Carico, PaperCarico
from lab.sim.schedulers.kube import Kube
from lab.sim.workload import HEAVY, LIGHT, PI, PodBatch

s, small = Section("small"), Setup(nodes=4, rehearsal=(LIGHT,))
jobs = [PodBatch(LIGHT, 30, 0.0, 10.0), PodBatch(HEAVY, 20, 10.0), PodBatch(PI, 60)]
_table(s, {100: [run(Kube(), jobs, 7, small)]}, {m.name: [run(m(), jobs, 7, small)] for m in (Carico, PaperCarico)})
for text in (s.text, scenarios.section(True).text, calibration.section(True).text):
    print("\\n".join(text))
"""


def tables(hash_seed: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run([sys.executable, "-c", TABLES], env=environment, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.long
def test_two_runs_give_the_same_bytes() -> None:
    first, second = tables("1"), tables("2")
    assert first == second
    assert first.count(b"| paper CARICO |") == 1


def test_sections_run_side_by_side_give_what_they_give_alone() -> None:
    from lab.experiments import scenarios

    (name, section), *_ = experiments(["scenarios"], quick=True, jobs=1)
    assert (name, section) == ("scenarios", scenarios.section(True))
    assert isinstance(section, Section)


def test_every_section_is_named() -> None:
    assert {*QUICK, *ALONE} <= {*ALL}


def test_a_section_of_other_code_is_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lab.report.HERE", tmp_path)
    section = Section("one", ["text"])
    section.claim("it holds", True)
    save("scenarios", section, made_with("scenarios"))
    assert saved("scenarios") == section
    path = tmp_path / "results/scenarios.json"
    for other in ('"code": "0123456789ab"', '"older": ""'):
        path.write_text(re.sub(r'"code": "\w{12}"', other, path.read_text()))
        marked = saved("scenarios")
        assert marked is not None and "made with other code" in marked.text[0] and marked.text[-1] == "text"
        assert [claim.text for claim in marked.claims] == ["it holds (made with other code)"]
        save("scenarios", section, made_with("scenarios"))


def test_comments_and_docstrings_do_not_void_results(tmp_path: Path) -> None:
    file, others = tmp_path / "a.py", []
    for text in ('"""Doc."""\nx = 1\n', '"""Better."""\nx = 1  # why\n', "x = 2\n"):
        file.write_text(text)
        others.append(code_hash(files_of(["a.py"], tmp_path)))
    assert others[0] == others[1] != others[2]
