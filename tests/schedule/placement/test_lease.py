"""Claims: how many requests they take, and that watched Leases may be old."""

import asyncio

from carico_agent.kube.placement_lease import Claim, LeaseRecord, Offer, PlacementLeases, lease_record
from carico_agent.schedule.nodes import PendingPod
from carico_agent.schedule.placement.lease import Check, LeaseClaims
from tests.kube.small_server import SmallServer

VALID_S = 15.0


def most(places: int) -> Check:
    def check(offer: Offer, others: dict[str, Claim]) -> str | None:
        limit = places if offer.places is None else min(places, offer.places)
        return None if len(others) < limit else f"no room: {limit}"

    return check


class Watched:
    """Claims on a server, with a watch of the Leases that shows what `look` has seen last."""

    def __init__(self, valid_s: float = VALID_S) -> None:
        self.server, self.shown = SmallServer(), dict[str, LeaseRecord]()
        leases = PlacementLeases(self.server, "carico")  # type: ignore[arg-type]
        self.leases = leases
        self.claims = LeaseClaims(leases, valid_s, lambda node: self.shown.get(node) or LeaseRecord())

    def look(self) -> None:
        self.shown = {name: lease_record(lease) for name, lease in self.server.leases.items()}

    async def claim(self, uid: str, places: int = 8, node: str = "a") -> str | None:
        return await self.claims.claim(node, PendingPod(uid), most(places))

    def requests(self) -> list[str]:
        """Those since this was last asked."""
        found, self.server.requests = self.server.requests, []
        return found


async def test_a_watched_lease_is_not_read() -> None:
    watched = Watched()
    assert await watched.claim("1") is None
    assert watched.requests() == ["POST leases"]
    await watched.leases.offer("a", Offer(8, 8), 150.0, [])  # the agent's heartbeat
    watched.look()
    watched.requests()
    assert await watched.claim("2") is None
    assert watched.requests() == ["PATCH leases"]
    assert lease_record(watched.server.leases["a"]).claims.keys() == {"1", "2"}


async def test_a_watch_that_is_behind_costs_a_conflict() -> None:
    watched = Watched()
    await watched.leases.offer("a", Offer(8, 8), 150.0, [])
    watched.look()
    await watched.leases.offer("a", Offer(1, 1), 150.0, [])
    watched.requests()
    assert await watched.claim("1") is None
    assert watched.requests() == ["PATCH leases", "GET leases", "PATCH leases"]
    assert watched.claims.conflicts == 1
    assert await watched.claim("2") == "no room: 1"


async def test_what_a_watch_showed_refuses_nobody() -> None:
    watched = Watched()
    await watched.leases.offer("a", Offer(0, 0), 150.0, [])
    watched.look()
    await watched.leases.offer("a", Offer(8, 8), 150.0, [])
    assert await watched.claim("1") is None


async def test_who_comes_while_a_write_is_on_its_way_is_claimed_in_the_next() -> None:
    watched = Watched()
    why = await asyncio.gather(*(watched.claim(str(n), places=20) for n in range(30)))
    assert watched.requests() == ["POST leases", "PATCH leases"]
    assert why.count(None) == 20 and set(why) == {None, "no room: 20"}
    assert len(lease_record(watched.server.leases["a"]).claims) == 20


async def test_a_lost_answer_concerns_all_who_wait_and_stops_none() -> None:
    watched = Watched()
    lost = iter([1.0])

    async def answer(found: object) -> object:
        watched.server.lose = next(lost, 0.0)
        return await SmallServer._answer(watched.server, found)  # type: ignore[arg-type]

    watched.server._answer = answer  # type: ignore[method-assign, assignment]
    why = await asyncio.gather(*(watched.claim(str(n), places=3) for n in range(5)), return_exceptions=True)
    # the first one's answer is lost, and its claim stands: nobody knows whether that Pod comes
    assert [str(one) for one in why] == ["the answer was lost", "None", "None", "no room: 3", "no room: 3"]


async def test_who_gives_up_waiting_leaves_the_others_alone() -> None:
    watched = Watched()
    tasks = [asyncio.create_task(watched.claim(str(n))) for n in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    assert await asyncio.gather(*tasks[1:]) == [None, None]
    assert {"1", "2"} <= lease_record(watched.server.leases["a"]).claims.keys()


async def test_a_claim_of_ours_is_not_written_twice() -> None:
    watched = Watched()
    assert await watched.claim("1") is None
    assert await watched.claim("1", places=0) is None  # the node has fallen since; this place was taken before
    assert watched.requests() == ["POST leases"]
    old = Watched(valid_s=0.0)
    assert await old.claim("1") is None
    assert await old.claim("1") is None
    assert old.requests() == ["POST leases", "PATCH leases"]


async def test_a_claim_of_another_replica_is_written_again() -> None:
    """Nobody here knows how old it is: the agent may be about to forget it."""
    watched, other = Watched(), Watched()
    other.server = watched.server
    other.claims = LeaseClaims(watched.leases, VALID_S)
    assert await other.claim("1") is None
    watched.look()
    watched.requests()
    assert await watched.claim("1") is None
    assert watched.requests() == ["PATCH leases"]


async def test_a_withdrawn_claim_does_not_count_though_the_lease_has_it() -> None:
    watched = Watched()
    assert await watched.claim("1", places=1) is None
    watched.look()
    watched.claims.withdraw("a", PendingPod("1"))
    assert await watched.claim("2", places=1) is None
    assert lease_record(watched.server.leases["a"]).claims.keys() == {"2"}
