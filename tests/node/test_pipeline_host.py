"""What the host uses beside Pods that wait: their waiting is not the host's usage."""

import pytest

from carico_agent.core import PodSample
from carico_agent.node.pipeline import HostUsage
from carico_agent.node.sampling import PodMeasurements, Usage

CORES = 2


def host_cores(utilisation, pressure, wants_cores, used_cores, waited_cores):
    """As HostUsage sees it; None: the model finds out by itself."""
    host = HostUsage(("cpu",), CORES)
    host.take(5.0, Usage(0.0, ((utilisation + pressure) / 2,), {"cpu_utilisation": utilisation}))
    pods = tuple(PodSample(f"p{i}", "k", (cores / (2 * CORES),)) for i, cores in enumerate(wants_cores))
    found = host.usage(PodMeasurements(pods, used_cores, 0.0, waited_cores))
    return None if found is None else found[0] * 2 * CORES


def test_busy_loops_wait_for_what_they_want():
    assert host_cores(1.0, 0.9, [1.0] * 4, 2.0, 2.0) is None


def test_waiting_instead_of_sleeping_is_no_usage_of_the_host():
    # two loops and eight threads at 6 % of a core: 2.48 cores are wanted, the node's channel shows 3.4
    found = host_cores(1.0, 0.7, [1.0, 1.0, 0.48], 1.98, 1.8)
    assert found == pytest.approx(0.04, abs=0.02)


def test_a_crowd_outside_the_pods_is_the_hosts():
    # eight loops that are no Pods, beside threads that sleep most of the time
    found = host_cores(1.0, 1.0, [0.49], 0.33, 2.7)
    assert found > 3.4
