"""What people see: status, top, events."""

from dataclasses import replace

from carico_agent.cli.events import describe as describe_event
from carico_agent.cli.status import describe
from carico_agent.cli.top import view
from carico_agent.publish.status import from_json

STATUS = from_json(
    {
        "node": "n1",
        "time": "2026-01-02T03:04:05.678Z",
        "sequence": 7,
        "pod_capacity": 3.21,
        "low": 2.9,
        "high": None,
        "slots": 6.21,
        "pods": 3,
        "mode": "measured",
        "limiting": "cpu",
        "usage": {"cpu": 0.52, "memory": None},
        "cost_vector": {"cpu": 0.125, "memory": 0.0},
        "age_s": 0.5,
        "ttl_s": 5.0,
        "runtime": "containerd 1.6",
        "absent": {"cpu.pressure": "cpu.pressure: boot with psi=1"},
    }
)


def test_status_for_humans() -> None:
    said = describe(STATUS, 0.5)
    assert "n1: room for 3.2 more Pods (2.9 to unbounded; measured, limited by cpu)" in said
    assert "a Pod takes 12.5%" in said
    assert "memory   unknown" in said
    assert "boot with psi=1" in said


def test_an_expired_number_is_called_void() -> None:
    assert "no valid number: the last one is 60 s old" in describe(STATUS, 60.0)


def test_an_unknown_number_is_called_unknown() -> None:
    assert "Pod-Capacity unknown" in describe(replace(STATUS, pod_capacity=None), 0.5)


def test_top_fits_the_terminal() -> None:
    for columns in (40, 80, 200):
        lines = view(STATUS, 0.5, [1.0, 2.0, 3.0], columns)
        assert all(len(line) < columns for line in lines)
    assert any("◄ limits" in line for line in lines)
    assert any("█" in line for line in lines)


def test_event_line() -> None:
    event = {
        "time": "2026-01-02T03:04:05.678901Z",
        "topic": "/tasks/start",
        "pod_name": "web",
        "pod_namespace": "shop",
        "count": 4,
    }
    assert describe_event(event).split() == ["03:04:05.678", "/tasks/start", "shop/web", "Pods", "4"]
