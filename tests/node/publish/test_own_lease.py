"""A lower number is published when the leader has seen it, or when nobody places Pods any more; in virtual time."""

import asyncio
import time

import pytest

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import Unreachable
from carico_agent.lib.kube.placement_lease import LEADER_LEASE, Acknowledgement, Offer, PlacedPod, PlacementLeases
from carico_agent.node.publish.own_lease import OwnLease
from tests.kube.small_server import SmallServer
from tests.virtual_time import run

EIGHT, TWO = Offer(8, 8), Offer(2, 2)


class Node:
    """Its agent has published eight; `leader` is the Lease of somebody who places Pods."""

    def __init__(self) -> None:
        self.server = SmallServer()
        self.leases = PlacementLeases(self.server, "carico")  # type: ignore[arg-type]
        self.own = OwnLease(self.leases, "a", 1e9, lambda: time.monotonic())

    async def start(self) -> None:
        assert await self.own.agree_on(EIGHT, [], {}, None) == (0, 0)
        await self.publish(EIGHT)

    async def publish(self, offer: Offer) -> str:
        """As the agent does with an offer that was agreed on. Returns the id that the Node object carries."""
        rise = await self.own.announce(offer, [])
        self.own.announced()
        return rise

    def lead(self, holder: str, term: int) -> None:
        spec: Object = {"holderIdentity": holder, "leaseTransitions": term, "leaseDurationSeconds": 8}
        self.server.version += 1
        meta = {"name": LEADER_LEASE, "resourceVersion": str(self.server.version)}
        self.server.leases[LEADER_LEASE] = {"metadata": meta, "spec": spec}

    async def acknowledge(self, leader: str, term: int, **placed: PlacedPod) -> str:
        token = (await self.leases.read("a")).token
        await self.leases.acknowledge("a", Acknowledgement(token, leader, term, placed))
        return token

    async def lower(self, here: tuple[str, ...] = ()) -> tuple[int, int] | None:
        return await self.own.agree_on(TWO, [], here, EIGHT)

    async def until_lower(self) -> float:
        began_s = time.monotonic()
        async with asyncio.timeout(120.0):
            while await self.lower() is None:
                await asyncio.sleep(1.0)
        return time.monotonic() - began_s


def test_without_an_extender_a_fall_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        node = Node()
        await node.start()
        node.server.requests.clear()
        assert await node.lower() == (0, 0)
        assert node.server.requests == ["PATCH leases", "GET leases"]
        assert (await node.leases.read("a")).offered == TWO

    run(scene(), monkeypatch)


def test_a_fall_waits_for_the_leader_and_counts_who_is_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        node = Node()
        await node.start()
        node.lead("x", 1)
        assert await node.lower() is None
        assert node.own.waits == "extender x"
        node.lead("x", 1)  # it renews its Lease
        await node.acknowledge("x", 1, one=PlacedPod(1.0, 1, "d/one"), two=PlacedPod(1.0, 2, "d/two"))
        assert await node.lower(here=("one",)) == (1, 2)
        assert node.own.waits == ""
        node.own.pods_bound(["two"])
        assert await node.lower() == (1, 1)
        await asyncio.sleep(15.0)
        assert await node.lower() == (0, 0)  # it never came

    run(scene(), monkeypatch)


def test_a_leader_of_the_past_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its successor may not have seen the lower offer: it is asked with another token."""

    async def scene() -> None:
        node = Node()
        await node.start()
        node.lead("x", 1)
        assert await node.lower() is None
        old = await node.acknowledge("x", 1)
        node.lead("y", 2)
        assert await node.lower() is None
        assert await node.lower() is None
        new = await node.acknowledge("y", 2)
        assert old != new
        assert await node.lower() == (0, 0)

    run(scene(), monkeypatch)


def test_a_leader_that_is_gone_is_waited_for_as_long_as_its_pods_may_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        node = Node()
        await node.start()
        node.lead("x", 1)
        assert await node.until_lower() == pytest.approx(8.0 + 15.0, abs=2.0)
        await node.publish(EIGHT)
        assert await node.until_lower() < 1.0  # it is still gone
        node.lead("", 1)  # the next one released it, just after it had placed somebody
        await node.publish(EIGHT)
        assert await node.until_lower() == pytest.approx(15.0, abs=2.0)

    run(scene(), monkeypatch)


def test_a_number_that_rises_again_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        node = Node()
        await node.start()
        node.lead("x", 1)
        assert await node.lower() is None
        assert await node.own.agree_on(EIGHT, [], {}, EIGHT) == (0, 0)
        await node.publish(EIGHT)
        record = await node.leases.read("a")
        assert (record.rise.offer, record.token, node.own.waits) == (EIGHT, "", "")

    run(scene(), monkeypatch)


def test_a_leader_whose_lease_was_deleted_may_still_place_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        node = Node()
        await node.start()
        node.lead("x", 1)
        assert await node.lower() is None
        await node.acknowledge("x", 1)
        del node.server.leases[LEADER_LEASE]
        assert await node.until_lower() == pytest.approx(8.0 + 15.0, abs=2.0)

    run(scene(), monkeypatch)


def test_a_lower_offer_that_has_expired_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledged, and then the Node could not be written for so long that extenders believed the Node again."""

    async def scene() -> None:
        node = Node()
        node.own = OwnLease(node.leases, "a", 150.0, lambda: time.monotonic())
        await node.start()
        node.lead("x", 1)
        assert await node.lower() is None
        old = await node.acknowledge("x", 1)
        assert await node.lower() == (0, 0)
        await asyncio.sleep(100.0)
        node.lead("x", 1)
        assert await node.lower() == (0, 0)  # nobody has been let in since
        await asyncio.sleep(60.0)
        node.lead("x", 1)
        assert await node.lower() is None
        assert await node.acknowledge("x", 1, late=PlacedPod(1.0, 1, "d/late")) != old
        assert await node.lower() == (1, 1)

    run(scene(), monkeypatch)


def test_a_higher_offer_holds_for_whoever_sees_the_node_that_publishes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        node = Node()
        await node.start()
        assert await node.lower() == (0, 0)
        assert await node.publish(TWO) == ""  # a fall needs no id
        assert await node.own.agree_on(EIGHT, [], {}, TWO) == (0, 0)
        rise = await node.own.announce(EIGHT, [])
        record = await node.leases.read("a")
        assert [record.offer(0.0, seen) for seen in ("", "another", rise)] == [TWO, TWO, EIGHT]
        assert await node.own.announce(EIGHT, []) == rise  # the Node could not be written: the same id again
        node.own.announced()
        await node.own.renew([])
        record = await node.leases.read("a")
        assert [record.offer(0.0, seen) for seen in ("", rise)] == [EIGHT, EIGHT]
        assert await node.publish(EIGHT) == rise  # the Node is written again for another reason: it keeps its id

    run(scene(), monkeypatch)


def test_a_rise_whose_write_was_lost_offers_nothing_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the Lease offers is then unknown: nothing, until the Node carries another id."""

    async def scene() -> None:
        node = Node()
        await node.start()
        assert await node.lower() == (0, 0)
        await node.publish(TWO)
        node.server.lose = 1.0
        with pytest.raises(Unreachable):
            await node.own.announce(EIGHT, [])
        node.server.lose = 0.0
        lost = (await node.leases.read("a")).rise.id
        rise = await node.own.announce(EIGHT, [])
        record = await node.leases.read("a")
        assert rise != lost
        assert [record.offer(0.0, seen) for seen in ("", lost, rise)] == [Offer(0, 0), Offer(0, 0), EIGHT]

    run(scene(), monkeypatch)
