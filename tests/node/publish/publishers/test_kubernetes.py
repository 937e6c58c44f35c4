"""What is published, and when: the publisher with a scripted client and a clock of its own."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import Refused, Unreachable
from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.kube.placement_lease import Offer, PlacementLeases, lease_record
from carico_agent.lib.kube.pods import facts
from carico_agent.lib.net.metrics import render
from carico_agent.lib.net.times import parse_rfc3339, rfc3339
from carico_agent.node.publish.identity import agent_identity
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.node_draft import NodeConfig
from carico_agent.node.publish.node_mirror import NodeFacts
from carico_agent.node.publish.node_publisher import NodePublisher
from carico_agent.node.publish.status import Status
from carico_agent.node.publish.throttle import ThrottleConfig
from tests.kube.small_server import SmallServer


class FakeClient:
    """Takes patches of the Node; Leases are another's."""

    clock_skew_s = 0.0

    def __init__(self) -> None:
        self.patches: list[Object] = []
        self.error: Exception | None = None
        self.leases = SmallServer()
        self.get, self.post = self.leases.get, self.leases.post

    async def patch(self, path: str, body: Object) -> Object:
        if "/leases/" in path:
            return await self.leases.patch(path, body)
        if self.error is not None:
            raise self.error
        self.patches.append(body)
        return {}


class Bench:
    """A publisher whose time we make."""

    def __init__(self, lease: bool = False, **throttle: float) -> None:
        self.now_s = 1000.0
        self.client = FakeClient()
        self.latest = LatestStatus(ttl_s=5.0, clock=lambda: self.now_s)
        self.counted: dict[str, bool] = {}
        config = NodeConfig("a", lease_namespace="carico" if lease else "", throttle=ThrottleConfig(**throttle))
        client: Any = self.client
        self.server = self.client.leases
        self.publisher = NodePublisher(
            client, self.latest, config, lambda: self.counted, lambda: self.now_s, identity="me"
        )
        self.publisher.mirror.pods_synced.set()
        self.publisher.mirror.change_node(False, NodeFacts("a"))

    def publish(self, capacity: float | None, pods: int = 0, mode: str = "measured") -> None:
        slots = None if capacity is None else capacity + pods
        self.latest.publish(
            Status(
                time="2024-01-01T00:00:00.000Z",
                pod_capacity=capacity,
                slots=slots,
                pods=pods,
                mode=mode,
                low=0.0,
                limiting="cpu",
            )
        )

    def bind(self, *uids: str, places: int = 1) -> None:
        for uid in uids:
            self.publisher.mirror.change_pod(
                False,
                facts(
                    {
                        "metadata": {"uid": uid, "name": uid},
                        "status": {"phase": "Pending"},
                        "spec": {"nodeName": "a", "containers": [{"resources": {"requests": {RESOURCE: str(places)}}}]},
                    },
                    RESOURCE,
                ),
            )

    def end(self, uid: str) -> None:
        self.publisher.mirror.change_pod(True, facts({"metadata": {"uid": uid}}))

    async def step(self, seconds: float = 0.0, silent: bool = False) -> str | None:
        """Time passes, the agent goes on publishing the same unless it is silent; why it was written, if it was."""
        self.now_s += seconds
        if not silent:
            self.latest.publish(self.latest.status)
        writer = self.publisher.writer
        writer.observe()
        draft = writer.draft()
        reason = writer.reason(draft)
        if reason:
            before = len(self.client.patches)
            await writer.write(draft)
            if len(self.client.patches) > before:
                self.seen(self.client.patches[-1])
        elif writer.renewal_due():
            await writer.renew()
        return reason

    def seen(self, patch: Object) -> None:
        amount = patch.get("status", {}).get("allocatable", {}).get(RESOURCE)
        status = patch["metadata"]["annotations"]["carico.dev/status"]
        self.publisher.mirror.change_node(False, NodeFacts("a", amount, amount, status))

    @property
    def amount(self) -> int:
        return int(self.client.patches[-1]["status"]["allocatable"][RESOURCE])

    @property
    def annotations(self) -> dict[str, Any]:
        return dict(self.client.patches[-1]["metadata"]["annotations"])


async def test_a_bound_pod_that_has_not_started_makes_no_new_places() -> None:
    bench = Bench()
    bench.publish(8.4)
    assert await bench.step() == "first"
    assert bench.amount == 8
    bench.bind(*"12345678")  # the scheduler fills it; none has started
    assert await bench.step(6) is None
    bench.counted = dict.fromkeys("1234", True)  # half of them run
    bench.publish(4.4, pods=4)
    assert await bench.step(6) is None
    bench.counted = dict.fromkeys("12345678", True)
    bench.publish(0.4, pods=8)
    assert await bench.step(6) is None
    bench.end("1")
    bench.counted.pop("1")
    bench.publish(1.4, pods=7)
    assert await bench.step(6) is None
    assert bench.amount == 8


async def test_never_below_what_is_held() -> None:
    bench = Bench()
    bench.publish(8.4)
    await bench.step()
    bench.bind("1", "2", "3", places=2)
    bench.counted = dict.fromkeys("123", True)
    bench.publish(0.0, pods=3)  # overloaded: nothing is left, and slots are below what is held
    assert await bench.step(6)
    assert bench.amount == 6
    assert bench.annotations["carico.dev/pod-capacity"] == "0.00"
    bench.end("2")
    bench.counted.pop("2")
    bench.publish(0.0, pods=2)
    await bench.step(6)
    assert bench.amount == 4


async def test_pods_that_hold_nothing_take_places_too() -> None:
    bench = Bench()
    bench.counted = {"daemon": True, "skipped": False}
    bench.publisher.mirror.list_pods(
        [facts({"metadata": {"uid": uid}, "spec": {"nodeName": "a"}}) for uid in bench.counted]
    )
    bench.publish(5.2, pods=3)  # one is known to the API server, two are not (ctr, a replay)
    await bench.step()
    assert bench.amount == 5
    status = json.loads(bench.annotations["carico.dev/status"])
    # Eight slots; two Pods that the API server does not know; one it knows that is not counted here.
    assert (bench.annotations["carico.dev/slots"], status["places"], status["pods"]) == ("8", 7, 3)


async def test_a_number_that_jumps_publishes_its_low_side() -> None:
    """Up and down by three every second: no place appears that is gone a second later, and falls are not held back."""
    bench = Bench(min_interval_s=1.0)
    written = []
    for second in range(60):
        bench.publish((8.4, 11.4, 5.4)[second % 3])
        await bench.step(1)
        written.append(bench.amount)
    assert set(written[3:]) == {5}
    for second in range(10):
        bench.publish(9.4)
        await bench.step(1)
        assert bench.amount == (5 if second < 2 else 9)
    bench.publish(4.4)
    await bench.step(1)
    assert bench.amount == 4


async def test_an_end_that_the_server_knows_first_is_no_dip() -> None:
    bench = Bench(min_interval_s=1.0)
    bench.bind("1", "2")
    bench.counted = dict.fromkeys("12", True)
    bench.publish(6.4, pods=2)
    await bench.step()
    bench.end("1")  # here it is still counted, and in Pod-Capacity
    await bench.step(1)
    assert bench.amount == 8
    bench.counted.pop("1")
    bench.publish(7.4, pods=1)
    await bench.step(1)
    assert bench.amount == 8


async def test_stale_is_withdrawn() -> None:
    bench = Bench()
    bench.publish(8.4)
    await bench.step()
    bench.bind("1")
    assert await bench.step(5.5, silent=True) == "slots 8 -> unknown"  # the status's TTL is 5 s
    assert bench.amount == 1
    assert bench.annotations["carico.dev/slots"] is None
    assert json.loads(bench.annotations["carico.dev/status"])["mode"] == "stale"
    bench.publish(8.4)
    assert await bench.step(0.1) is None
    assert await bench.step(5.0) == "slots unknown -> 8"


async def test_without_a_lease_quiet_is_once_a_minute_and_noise_at_max_every_five_seconds() -> None:
    bench = Bench()
    writes = 0
    for second in range(600):
        bench.publish(8.0 + 0.05 * (-1) ** second)
        writes += bool(await bench.step(1))
    assert writes <= 11
    bench, writes = Bench(), 0
    for second in range(600):
        bench.publish(20.0 * (second % 2))
        writes += bool(await bench.step(1))
    assert writes <= 121 + 6  # and what falls took in advance


async def test_a_quiet_node_writes_its_lease_and_not_its_node() -> None:
    bench = Bench(lease=True)
    for second in range(599):
        bench.publish(8.0 + 0.05 * (-1) ** second)
        await bench.step(1)
    assert (len(bench.client.patches), bench.publisher.lease.writes) == (1, 2 + 9)
    spec = bench.server.leases["a"]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("me", 150)
    assert abs(parse_rfc3339(spec["renewTime"]) - time.time()) < 60
    await bench.step(2)  # what stands beside the whole number is written again after ten minutes
    assert len(bench.client.patches) == 2


async def test_a_fall_is_written_at_once_however_large_the_cluster() -> None:
    bench = Bench(lease=True)
    bench.publisher.writer.size(5000)
    bench.publish(9.4)
    await bench.step()
    for slots in (8.4, 7.4, 6.4, 5.4, 4.4, 3.4):
        bench.publish(slots)
        await bench.step(1)
        assert bench.amount == int(slots)
        assert lease_record(bench.server.leases["a"]).offered == Offer(int(slots), int(slots))


async def test_a_rise_waits_for_the_clusters_pace_and_must_have_held() -> None:
    bench = Bench(lease=True)
    bench.publisher.writer.size(5000)
    bench.publish(5.4)
    await bench.step()
    rose = []
    for second in range(1, 400):
        bench.publish(9.4 if second % 100 > 60 else 7.4)
        if await bench.step(1):
            rose.append((second, bench.amount))
    assert rose == [(60, 7)]  # 9 holds for 40 s at a time


async def test_a_number_that_cannot_be_corrected_gets_no_heartbeats() -> None:
    bench = Bench(lease=True)
    bench.publish(8.4)
    await bench.step()
    bench.client.error = Refused(403, "missing right: x")
    bench.publish(3.4)
    await bench.step(1)
    before = bench.publisher.lease.writes
    for _ in range(20):
        bench.publisher.writer.retries.at_s = bench.now_s + 100.0
        assert not bench.publisher.writer.renewal_due()
        bench.now_s += 30.0
    assert bench.publisher.lease.writes == before
    bench.client.error = None
    assert await bench.step(1)
    bench.now_s += 60.0  # that write was a heartbeat, too
    assert bench.publisher.writer.renewal_due()


async def test_room_goes_with_the_published_number() -> None:
    """A number that is held at its low side must not come with the room of its high side."""
    bench = Bench(lease=True)
    bench.publisher.writer.size(5000)
    seen = []
    for capacity in (4.5, 9.5):
        bench.latest.publish(
            Status(
                time="2024-01-01T00:00:00.000Z",
                pod_capacity=capacity,
                slots=capacity,
                mode="measured",
                low=0.0,
                limiting="cpu",
                pods_measured=True,
                room={"cpu": capacity / 10},
                cost_vector={"cpu": 0.1},
                sizes={"cpu": 10.0},
            )
        )
        bench.now_s += 1.0
        bench.publisher.writer.observe()
        draft = bench.publisher.writer.draft()
        assert draft.workloads is not None
        seen.append((draft.summary.slots, round(draft.workloads.room[0], 6)))
    assert seen == [(4, 4.5), (4, 4.5)]


@pytest.mark.parametrize("age_s", [10.0, 200.0])
async def test_the_second_agent_of_a_node_notices_the_first(age_s: float) -> None:
    bench = Bench(lease=True)
    leases = PlacementLeases(bench.server, "carico")  # type: ignore[arg-type]
    await leases.offer("a", Offer(8, 8), 150.0, [], "another")
    bench.server.leases["a"]["spec"]["renewTime"] = rfc3339(time.time() - age_s, "microseconds")
    assert await bench.publisher.lease.other_agent() == ("another" if age_s < 150 else "")
    bench.publish(8.4)
    running = asyncio.create_task(bench.publisher.writer.run())
    bench.publisher.mirror.node_synced.set()
    async with asyncio.timeout(20):
        while not bench.client.patches and "another agent (another)" not in bench.publisher.condition:
            await asyncio.sleep(0.01)
    running.cancel()
    assert bool(bench.client.patches) == (age_s > 150)


async def test_a_clock_that_is_off_is_reported() -> None:
    bench = Bench()
    bench.publish(8.4)
    await bench.step()
    assert bench.publisher.condition == "published"
    bench.client.clock_skew_s = -40.0
    assert bench.publisher.condition == "published; the clock here is 40 s behind the API server's"
    assert "carico_kubernetes_clock_skew_seconds -40" in render(bench.publisher.families())


async def test_an_agent_is_not_in_its_own_way() -> None:
    bench = Bench(lease=True)
    bench.publish(8.4)
    await bench.step()
    assert await bench.publisher.lease.other_agent() == ""
    await bench.publisher.writer.withdraw()
    assert lease_record(bench.server.leases["a"]).holder == ""


def test_an_identity_survives_a_restart_and_a_damaged_file(tmp_path: Path) -> None:
    file = tmp_path / "state/agent-id"
    first = agent_identity(file)
    assert agent_identity(file) == first
    file.write_bytes(b"\xff")
    assert agent_identity(file) not in ("", first)


async def test_foreign_writes_are_answered() -> None:
    bench = Bench()
    bench.publish(8.4)
    await bench.step()
    mine = bench.annotations["carico.dev/status"]
    for foreign in (
        NodeFacts("a", "0", "0", mine),
        NodeFacts("a", None, None, mine),
        NodeFacts("a", "8", "7", mine),
        NodeFacts("a", "8", "8", None),
    ):
        bench.publisher.mirror.change_node(False, foreign)
        assert await bench.step(1) is None
        assert await bench.step(4)
        assert bench.amount == 8
        mine = bench.annotations["carico.dev/status"]


async def test_without_the_right_to_see_pods_only_annotations_are_published() -> None:
    bench = Bench()
    bench.publisher.mirror.pods_synced.clear()
    bench.publish(8.4)
    await bench.step()
    assert "status" not in bench.client.patches[0]
    assert json.loads(bench.annotations["carico.dev/status"])["places"] is None


async def test_a_refused_write_is_tried_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.client.error = Refused(403, "missing right: x")
    bench.publish(8.4)
    delays = []
    for _ in range(8):
        await bench.step()
        delays.append(bench.publisher.writer.retries.at_s - bench.now_s)
    assert 0.8 <= delays[0] <= 1.2
    assert 48 <= delays[-1] <= 72
    assert [record.message for record in caplog.records] == ["Kubernetes node a: missing right: x"]
    assert bench.publisher.condition == "missing right: x"


async def test_the_servers_return_is_answered_at_once() -> None:
    bench = Bench()
    bench.publish(8.4)
    await bench.step()
    bench.publisher.health.bad("/api/v1/nodes", Unreachable("gone"))
    assert await bench.step(30) is None
    bench.publisher.health.good("/api/v1/nodes")
    assert await bench.step(1) == "the API server is back"
    assert await bench.step(6) is None


async def test_an_empty_node_that_fits_one_pod_offers_one() -> None:
    """Its number rose from 0.6 to 1.12, and stayed there: the Node object said 0 for as long as it was empty."""
    bench = Bench()
    bench.publish(0.6)
    assert await bench.step() == "first" and bench.amount == 0
    bench.publish(1.12)
    for _ in range(20):
        await bench.step(1)
    assert bench.amount == 1 and bench.annotations["carico.dev/slots"] == "1"
    for _ in range(20):  # noise around one Pod closes it no more
        bench.publish(0.95)
        await bench.step(1)
    assert bench.amount == 1
