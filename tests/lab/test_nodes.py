"""A sample of lab/sim/nodes.py: with measured Pods the number is right on nodes where the node-wide filter is not."""

from dataclasses import replace

import pytest

from lab.sim.nodes import NODES, run

SAMPLE = ("8 system Pods, one-core Pods", "two workloads at once", "host steps", "ramps of 30 s")


@pytest.mark.parametrize("name", SAMPLE)
def test_measured_pods_give_the_right_number(name: str) -> None:
    spec = replace(next(spec for spec in NODES if spec.name == name), length_s=400.0)
    score = run(spec, [4711], with_pods=True)
    assert score.rms <= 0.12
    assert score.wrong <= 0.03
    assert score.covered >= 0.8
    assert score.trusted > 0.9


def test_without_readings_of_pods_the_filter_stays_within_its_bounds() -> None:
    spec = replace(next(spec for spec in NODES if spec.name == "boot noise"), length_s=300.0)
    assert run(spec, [4711], with_pods=False).base_outside == 0
