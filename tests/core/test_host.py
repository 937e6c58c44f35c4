"""What the node uses and no Pod does."""

import pytest

from carico_agent.core.host import HostShare

POD = 0.125


def test_a_pod_that_has_just_left_is_not_the_host() -> None:
    """Three of five readings that still show a Pod that has gone: the node's usage lags behind."""
    host = HostShare(1, None, 4)
    for lag in (0.0, 0.0, 0.0, 0.0, 0.0, POD, 0.0, POD, POD):
        host.learn([0.02 + 3 * POD + lag], [3 * POD], beyond=float("nan"), settled=False)
    assert host.usage == [pytest.approx(0.02)]


def test_a_host_that_starts_to_work_is_seen_within_three_settled_readings() -> None:
    host = HostShare(1, None, 4)
    for used in (0.02,) * 15 + (0.3,) * 3:
        host.learn([used], [0.0], beyond=float("nan"), settled=True)
    assert host.usage == [pytest.approx(0.3)]


@pytest.mark.parametrize("settled", [True, False])
def test_saved_and_restored(settled: bool) -> None:
    host, again = HostShare(1, None, 4), HostShare(1, None, 4)
    for n in range(20):
        host.learn([0.01 * n], [0.0], beyond=float("nan"), settled=settled)
    again.restore(host.state())
    assert again.usage == host.usage and again.state() == host.state()
    older = {key: value for key, value in host.state().items() if key != "settled"}
    again.restore(older | {"recent": [[0.1, 0.2, 0.3]]})  # as earlier versions saved it
    assert again.usage == [0.2]
