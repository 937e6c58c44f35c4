"""Real aggregator processes and real clients: calls, streams, restarts, several aggregators, status, metrics."""

import asyncio
import signal
import time
from contextlib import asynccontextmanager

import aiohttp
import grpc
import numpy as np
import pytest

from carico_agent.core.subspace import Subspace
from carico_agent.federation import wire
from carico_agent.federation.client import FederationClient, reconnect_delay_s
from carico_agent.federation.contribution import Contribution
from carico_agent.federation.moments import Moments
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.federation.status import describe, fetch_status
from carico_agent.settings import FederationSettings

from .processes import aggregator, until

pytestmark = pytest.mark.asyncio(loop_scope="session")  # grpc.aio likes one event loop per process
TWO = ("cpu", "memory")


def contributed(cpu: float, memory: float = 0.2, **more) -> Contribution:
    return Contribution(TWO, Subspace.of_batch([[cpu], [memory]]), samples=10, pods=1, **more)


def fast(*addresses: str, **more) -> FederationSettings:
    return FederationSettings(
        **{"aggregators": addresses, "period_s": 0.1, "heartbeat_s": 0.5, "answer_s": 2.0, **more}
    )


@asynccontextmanager
async def client(settings: FederationSettings, node: str, local, resources=TWO):
    """A running client; `views` has what it received."""
    views = []
    one = FederationClient(settings, node, resources, local if callable(local) else lambda: local, views.append)
    one.views = views
    task = asyncio.create_task(one.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def sees(one: FederationClient, nodes: int, *contributions: Contribution):
    """Whether the client's view is the exact one of these contributions."""
    if one.view is None or one.view.nodes != nodes:
        return False
    exact = Moments()
    for i, each in enumerate(contributions):
        exact.put(str(i), each)
    expected = exact.sums().subspace()
    return not contributions or np.allclose(one.view.subspace.unit, expected.unit, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("transport", ["stream", "unary"])
async def test_two_nodes_receive_the_mean_of_both(transport, tmp_path):
    a, b = contributed(0.9, 0.1), contributed(0.1, 0.6)
    async with aggregator(listen=f"unix:{tmp_path}/agg.sock") as server:
        assert (tmp_path / "agg.sock").stat().st_mode & 0o777 == 0o660
        settings = fast(server.address, transport=transport)
        async with client(settings, "a", a) as one, client(settings, "b", b) as two:
            await until(lambda: sees(one, 2, a, b) and sees(two, 2, a, b))
            assert one.condition == f"connected to {server.address}"
            assert one.peers == 1 and one.age_s < 5
        await until(lambda: _nodes(server.address, 0))  # both sent that they leave


async def _nodes(address: str, count: int) -> bool:
    return (await fetch_status(address))["view"]["nodes"] == count


async def test_resources_in_any_order_and_missing_ones():
    async with aggregator() as server:
        settings = fast(server.address)
        swapped = Contribution(("memory", "cpu"), Subspace.of_batch([[0.2], [0.8]]))
        only_cpu = Contribution(("cpu",), Subspace.of_batch([[0.4]]))
        async with (
            client(settings, "a", swapped, ("memory", "cpu")) as one,
            client(settings, "b", only_cpu, ("cpu",)) as two,
        ):
            await until(lambda: sees(one, 2) and sees(two, 2))
            rms = np.sqrt((0.8**2 + 0.4**2) / 2)
            assert np.sqrt(two.view.subspace.unit**2).tolist() == pytest.approx([rms])
            squares = ((one.view.subspace.u * one.view.subspace.sigma) ** 2).sum(axis=1)
            assert np.sqrt(squares).tolist() == pytest.approx([0.2, rms])  # memory as those see it who measure it


async def test_a_node_that_knows_nothing_listens_and_learns_the_cost():
    knows = contributed(0.5, cost=[0.125, 0.05], precision=[1e4, 1e4], sizes=[8.0, 16.0])
    async with aggregator() as server:
        async with client(fast(server.address), "a", knows), client(fast(server.address), "new", lambda: None) as new:
            await until(lambda: new.view is not None)
            assert new.view.nodes == 1  # a listener has no share
            assert new.view.cost.tolist() == pytest.approx([1.0, 0.8])  # absolute: this node gave no sizes
        idle = contributed(0.01, cost=[0.5, 0.5], precision=[0.0, 0.0], sizes=[16.0, 16.0])
        async with client(fast(server.address), "a", knows), client(fast(server.address), "idle", idle) as one:
            await until(lambda: sees(one, 2))
            assert one.view.cost.tolist() == pytest.approx([1 / 16, 0.05])
            assert (one.view.precision > 100).all()


@pytest.mark.long
async def test_the_rate_follows_change():
    usage = [0.5]
    async with aggregator() as server:
        settings = fast(server.address, heartbeat_s=60.0, tolerance=0.02)
        async with client(settings, "a", lambda: contributed(usage[0])) as one:
            await until(lambda: one.view is not None)
            calm = await quiet(lambda: one.exchanges)  # nothing moved, nothing is sent
            usage[0] = 0.6
            await until(lambda: one.exchanges > calm)


async def quiet(count, seconds: float = 1.0) -> int:
    """What `count` gives once it has been the same for so long; ten periods here."""
    async with asyncio.timeout(60):
        seen = None
        while seen != (seen := count()):
            await asyncio.sleep(seconds)
    return seen


@pytest.mark.long
async def test_a_changed_view_is_pushed_to_nodes_that_have_nothing_to_send():
    async with aggregator() as server:
        calm = fast(server.address, heartbeat_s=60.0)
        async with client(calm, "a", contributed(0.2)) as one:
            await until(lambda: sees(one, 1, contributed(0.2)))
            before = one.exchanges
            async with client(calm, "b", contributed(0.8)):
                await until(lambda: sees(one, 2, contributed(0.2), contributed(0.8)))
            assert one.pushed_views > 0 and one.exchanges <= before + 1


async def test_a_large_fleet_spreads_its_return():
    few, many = ([reconnect_delay_s(1, nodes) for _ in range(1000)] for nodes in (3, 5000))
    assert max(few) < 1.0
    assert max(many) > 9.0 and min(many) < 1.5  # 500 handshakes per second
    assert max(reconnect_delay_s(1, 10**6) for _ in range(100)) < 35.0


@pytest.mark.long
async def test_an_unchanged_node_stays_alive():
    async with (
        aggregator(silence_s=3.0) as server,  # long enough for a machine that is busy
        client(fast(server.address, heartbeat_s=60.0), "a", contributed(0.5)) as one,
    ):
        await until(lambda: one.view is not None)
        await asyncio.sleep(4.0)  # the client keeps to a third of the server's limit, whatever its own heartbeat
        assert await _nodes(server.address, 1)


@pytest.mark.long
async def test_a_silent_node_is_taken_out():
    async with aggregator(silence_s=4.0) as server:  # long enough to be seen on a machine that is busy
        await _send(server.address, "quiet", contributed(0.9))
        await until(lambda: _nodes(server.address, 1))
        await until(lambda: _nodes(server.address, 0))


async def _send(address: str, node: str, what: Contribution, time_ns: int | None = None) -> pb.View:
    async with grpc.aio.insecure_channel(address) as channel:
        raw = wire.write_contribution(node, what, time.time_ns() if time_ns is None else time_ns)
        return pb.View.FromString(await channel.unary_unary(f"/{wire.SERVICE}/Exchange")(raw, timeout=60))


@pytest.mark.long
@pytest.mark.parametrize("saved", [False, True])
async def test_restart(saved, tmp_path):
    state = str(tmp_path / "state") if saved else ""
    quiet = contributed(0.9)
    async with aggregator(state=state) as server, client(fast(server.address), "a", contributed(0.1)) as one:
        await _send(server.address, "quiet", quiet)
        await until(lambda: sees(one, 2))
        before = one.exchanges
        await server.restart(signal.SIGTERM)
        await until(lambda: one.exchanges > before + 2)
        # The one that sends no more is still known if the state was saved, and only then.
        status = await fetch_status(server.address)
        assert status["view"]["nodes"] == (2 if saved else 1)
        assert status["view"]["incomplete"] is not saved
        assert one.view.nodes == 2  # without state, the old view is kept while the view of the aggregator is incomplete
        assert one.condition.startswith("connected")


async def test_a_broken_state_file_is_logged_and_not_used(tmp_path):
    (tmp_path / "state").write_bytes(b"\xff\xfe no state")
    async with aggregator(state=str(tmp_path / "state")) as server:
        await until(lambda: _nodes(server.address, 0))
    assert "not used" in server.log()


@pytest.mark.long
async def test_three_aggregators_count_a_wandering_node_once():
    async with (
        aggregator(name="x", share_period_s=0.1) as x,
        aggregator(name="y", share_period_s=0.1, peers=(x.address,)) as y,
        aggregator(name="z", share_period_s=0.1, peers=(x.address, y.address)) as z,
    ):
        everywhere = (x.address, y.address, z.address)
        nodes = {f"n{i}": contributed(0.1 + i / 20, 0.5 - i / 30) for i in range(12)}
        for lap in range(3):
            for i, (node, what) in enumerate(nodes.items()):
                await _send(everywhere[(i + lap) % 3], node, what)
        exact = Moments()
        for node, what in nodes.items():
            exact.put(node, what)
        expected = exact.sums().subspace()

        async def agree() -> bool:
            views = [(await fetch_status(address))["view"] for address in everywhere]
            return all(
                view["nodes"] == 12 and np.allclose(view["subspace"]["sigma"], expected.sigma, atol=1e-9, rtol=0)
                for view in views
            )

        await until(agree)
        assert {p["condition"] for p in (await fetch_status(z.address))["peers"]} == {"ok"}
        await y.stop(signal.SIGKILL)  # its four nodes vanish with it …
        await until(lambda: _nodes(x.address, 8))
        await y.start()
        for node, what in nodes.items():  # … and come back, wherever
            await _send(z.address, node, what)
        await until(agree)


async def test_status_and_metrics(tmp_path):
    async with aggregator(http=f"unix:{tmp_path}/http.sock") as server:
        await _send(server.address, "n1", contributed(0.6, 0.8, cost=[0.1, 0.2], precision=[400.0, 400.0]))
        await _send(server.address, 'evil"\\', contributed(0.5), time_ns=0)
        await until(lambda: _nodes(server.address, 1))
        text = describe(await fetch_status(server.address))
        assert "node n1:" in text and "direction cpu 0.600, memory 0.800" in text and "rejected 1 x time" in text
        connector = aiohttp.UnixConnector(path=str(tmp_path / "http.sock"))
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.get("http://aggregator/healthz") as answer:
                assert (await answer.json())["nodes"] == 1
            async with session.get("http://aggregator/metrics") as answer:
                metrics = await answer.text()
        assert 'carico_aggregator_rejects_total{reason="time"} 1' in metrics
        assert 'carico_aggregator_direction{resource="memory"} 0.8' in metrics


async def test_nobody_there():
    with pytest.raises(ConnectionError):
        await fetch_status("127.0.0.1:1", timeout_s=2)
    async with client(fast("127.0.0.1:1"), "a", contributed(0.5)) as one:
        await until(lambda: one.condition.startswith("local only: 127.0.0.1:1 does not answer"))
        assert one.view is None and one.peers == 0 and one.age_s is None


async def test_the_next_aggregator_is_tried():
    async with aggregator() as server, client(fast("127.0.0.1:1", server.address), "a", contributed(0.5)) as one:
        await until(lambda: one.view is not None)


async def test_a_taken_port_is_an_error_and_not_half_a_cluster():
    async with aggregator() as server:
        with pytest.raises(RuntimeError, match="cannot listen"):
            async with aggregator(listen=server.address):
                pass


async def test_plaintext_stays_at_home():
    with pytest.raises(RuntimeError, match="plaintext is for loopback"):
        async with aggregator(listen="0.0.0.0:0"):
            pass
    async with aggregator(listen="0.0.0.0:0", allow_plaintext=True) as server:
        assert server.address.startswith("0.0.0.0:")


async def test_the_papers_queue_is_selectable():
    async with aggregator(method="pairwise") as server, client(fast(server.address), "a", contributed(0.5)) as one:
        await until(lambda: one.view is not None and one.view.nodes == 1)
        assert (await fetch_status(server.address))["method"] == "pairwise"


@asynccontextmanager
async def impostor(**methods):
    """Something that speaks gRPC and answers each contribution with what `methods[name](contribution)` gives."""

    def stream(answer):
        async def serve(contributions, context):
            async for raw in contributions:
                yield answer(raw)

        return grpc.stream_stream_rpc_method_handler(serve)

    def unary(answer):
        async def serve(raw, context):
            return answer(raw)

        return grpc.unary_unary_rpc_method_handler(serve)

    handlers = {name: (stream if name == "Stream" else unary)(answer) for name, answer in methods.items()}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(wire.SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_lying_aggregator_is_not_believed_and_the_last_good_view_stays():
    good = pb.View(subspace=pb.Subspace(resources=TWO, u=[0.6, 0.8], sigma=[1.0]), nodes=2, wire=2).SerializeToString()
    bad = pb.View(subspace=pb.Subspace(resources=TWO, u=[0.6, 0.8], sigma=[99.0]), nodes=2, wire=2).SerializeToString()
    answers = [good, good, bad]
    async with (
        impostor(Stream=lambda raw: answers.pop(0) if len(answers) > 1 else bad) as address,
        client(fast(address), "a", contributed(0.5)) as one,
    ):
        await until(lambda: "sent a view that is not believed: sigma" in one.condition)
        assert one.rejected_views and one.view.subspace.unit.tolist() == pytest.approx([0.6, 0.8])


async def test_a_slow_aggregator_counts_as_lost():
    async def say_nothing(reader, writer):
        await reader.read()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with client(fast(address, answer_s=0.3), "a", contributed(0.5)) as one:
        await until(lambda: "no answer within 1.5 s" in one.condition)
    server.close()


async def test_an_aggregator_without_streams_is_asked_by_single_calls():
    view = pb.View(subspace=pb.Subspace(resources=TWO, u=[0.6, 0.8], sigma=[1.0]), nodes=2, wire=2).SerializeToString()
    async with (
        impostor(Exchange=lambda raw: view) as address,
        client(fast(address), "a", contributed(0.5)) as one,
    ):
        await until(lambda: one.view is not None and one.condition.startswith("connected"))
