"""The whole flow on a recorded trace of a real node, against a golden answer.

`pytest tests/test_golden.py --update-golden` rewrites it; read the diff.
"""

import json
from pathlib import Path

import pytest

from carico_agent.node.pipeline import replay
from carico_agent.node.publish.status import as_json, status_of
from carico_agent.node.sampling import read_trace
from carico_agent.settings import Settings

GOLDEN = Path(__file__).parent / "golden"
TRACE, ANSWER = GOLDEN / "bursts.trace.gz", GOLDEN / "bursts.json"


def answers() -> list[dict[str, object]]:
    header, rows = read_trace(TRACE)
    found = []
    for second in replay(header, rows, Settings()):
        status = as_json(status_of(header.node, header.resources, second.estimate, second.usage.detail))
        kept = ("pods", "mode", "limiting", "pod_capacity", "low", "high", "usage", "cost_vector")
        found.append({"t": round(second.t, 3), **{key: status[key] for key in kept}})
    return found


def close(a: object, b: object) -> bool:
    """Equal, up to what another BLAS may round differently."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float):
        return a == pytest.approx(b, abs=2e-3)
    return a == b


def test_replay_gives_the_golden_answer(request: pytest.FixtureRequest) -> None:
    found = answers()
    if request.config.getoption("--update-golden"):
        ANSWER.write_text("[\n" + ",\n".join(json.dumps(row) for row in found) + "\n]\n")
    expected = json.loads(ANSWER.read_text())
    assert len(found) == len(expected)
    for ours, golden in zip(found, expected, strict=True):
        assert close(ours, golden), f"at t={golden['t']}:\n  now    {ours}\n  golden {golden}"


def test_a_second_replay_is_identical() -> None:
    assert answers() == answers()
