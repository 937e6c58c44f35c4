"""A leader whose machine was suspended: CLOCK_MONOTONIC stands still meanwhile, CLOCK_BOOTTIME does not."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from carico_agent.extender.published import PublishedNode
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.kube.names import RESOURCE
from tests.extender.team import extender_of, start
from tests.extender.test_admission import asking, question
from tests.kube.small_server import SmallServer


@pytest.fixture
def suspend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Call it with the seconds that the machine sleeps."""
    real, asleep_s = time.clock_gettime, [0.0]
    monkeypatch.setattr(
        time, "clock_gettime", lambda clock: real(clock) + (asleep_s[0] if clock == time.CLOCK_BOOTTIME else 0.0)
    )
    yield lambda seconds: asleep_s.__setitem__(0, asleep_s[0] + seconds)


async def test_it_places_nobody_until_it_has_its_lease_again(suspend: Callable[[float], None]) -> None:
    """Before, it bound Pods by what it remembered, while another extender led and numbers had fallen."""
    server = SmallServer()
    one = extender_of(server, [PublishedNode("a", 8.0, 0.0, 100.0, 64.0, 8)], resource=RESOURCE, lease_namespace="x")[0]
    tasks = start(one)
    await asyncio.sleep(0.05)
    for uid in "12":
        asking(server, uid, 1)
    assert (await one.webhook.review(question("1")))["response"]["allowed"]
    replicas = one.replicas
    assert replicas is not None and replicas.leader.leads
    for task in tasks:
        task.cancel()  # nothing of it ran while the machine slept
    suspend(60.0)
    assert not replicas.leader.leads and not replicas.may_place
    with pytest.raises(KubeError, match="no extender leads yet"):
        await one.webhook.review(question("2"))
