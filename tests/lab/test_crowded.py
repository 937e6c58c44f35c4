"""lab.crowded: its bounds can fail; and a small sample of its cells on this machine."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from lab.crowded.__main__ import code_hash, kept, page
from lab.crowded.cells import LOADS, CrowdedCell, CrowdLoad
from lab.crowded.run import Crowd, NoCompiler, truth_of
from lab.support.containerd import PrivateContainerd, missing

THINK = CrowdedCell("think", 8, False, "container", 8, True, 0.48, 0.49, 0.05, 0.32, 3.06)


@pytest.mark.parametrize(
    ("cell", "within"),
    [
        (THINK, True),
        (replace(THINK, cost=0.60), False),
        (replace(THINK, cost=float("nan")), False),
        (replace(THINK, truth=0.06, cost=0.085), True),  # .03 cores
        (replace(THINK, workload="open", started_crowded=False, cost=0.60), True),
        (replace(THINK, workload="open", started_crowded=False, cost=0.70), False),
        (replace(THINK, workload="open", cost=1.9, cost_sd=0.9), True),  # the interval reaches there
        (replace(THINK, workload="open", cost=1.9, cost_sd=0.5), False),
    ],
)
def test_bounds(cell, within):
    assert cell.within is within
    assert ("**missed**" in page([cell], "abc")) is not within


def test_every_cell_is_measured():
    assert len({load.name for load in LOADS}) == len(LOADS) == 18
    assert truth_of(CrowdLoad("busy", 4, False), 2.0) == 4.0  # what it wants, however few CPUs there are
    assert truth_of(CrowdLoad("busy", 4, True), 1.9) == 2.0
    assert truth_of(CrowdLoad("think", 1, True), 0.044) == 0.044


def test_results_of_other_code_are_not_mixed(tmp_path):
    file = tmp_path / "crowded.json"
    file.write_text('{"code": "other", "load": 3, "cells": [1]}')
    assert kept(file, code_hash()) == ([], 0.0) and kept(file, "other") == ([1], 3.0)
    assert "machine was loaded" in page([THINK], "abc", 3.0) and "machine was loaded" not in page([THINK], "abc", 0.1)


@pytest.mark.alone
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(
    "load", [CrowdLoad("busy", 4, False), CrowdLoad("think", 8, False)], ids=lambda load: load.name
)
def test_what_pods_cost_beside_two_busy_loops(load):
    with PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-"))) as containerd:
        try:
            crowd = Crowd(containerd)
        except NoCompiler as error:
            pytest.skip(str(error))
        cells = list(crowd.cells(load, (0, 2), started=False))
    assert len(cells) == 4 and all(cell.within for cell in cells), cells
