"""Whatever arrives: it is taken, or refused by name; nothing else happens."""

import contextlib
import time

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico_agent.core.subspace import Subspace
from carico_agent.federation import wire
from carico_agent.federation.aggregator import Aggregator
from carico_agent.federation.contribution import Contribution, Rejected
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.settings import AggregatorSettings

from .processes import aggregator

NAN, INF = float("nan"), float("inf")
GOOD = {"resources": ["cpu", "memory"], "u": [0.6, 0.8, 0.8, -0.6], "sigma": [1.0, 0.2]}


def raw(node="n", time_ns=None, cost=None, wire_version=2, **subspace) -> bytes:
    return pb.Contribution(
        node=node,
        subspace=pb.Subspace(**{**GOOD, **subspace}),
        cost=cost,
        time_unix_nano=time.time_ns() if time_ns is None else time_ns,
        wire=wire_version,
    ).SerializeToString()


HOSTILE = {
    "not protobuf": (b"\xff" * 40, "decode"),
    "text": (b"GET / HTTP/1.1\r\n\r\n", "decode"),
    "nothing": (b"", "name"),
    "no name": (raw(node=""), "name"),
    "long name": (raw(node="x" * 254), "name"),
    "newline in the name": (raw(node="a\nb"), "name"),
    "terminal escape in the name": (raw(node="a\x1b[31m"), "name"),
    "no resources": (raw(resources=[], u=[], sigma=[]), "size"),
    "a resource twice": (raw(resources=["cpu", "cpu"]), "size"),
    "17 resources": (raw(resources=[f"r{i}" for i in range(17)], u=[0.0] * 17, sigma=[1.0]), "size"),
    "unprintable resource": (raw(resources=["cpu", "\x00"]), "name"),
    "too few numbers": (raw(u=[0.6, 0.8, 0.8]), "size"),
    "more directions than resources": (raw(u=[1.0, 0, 0, 0, 1.0, 0], sigma=[1, 1, 1]), "size"),
    "NaN in u": (raw(u=[NAN, 0.8, 0.8, -0.6]), "finite"),
    "infinity in u": (raw(u=[INF, 0.8, 0.8, -0.6]), "finite"),
    "huge u": (raw(u=[1e308, 1e308, 1e308, 1e308]), "finite"),
    "not orthogonal": (raw(u=[0.6, 0.6, 0.8, 0.8]), "orthonormal"),
    "not unit length": (raw(u=[6.0, 0.8, 8.0, -0.6]), "orthonormal"),
    "zero directions": (raw(u=[0.0] * 4), "orthonormal"),
    "negative sigma": (raw(sigma=[1.0, -0.1]), "sigma"),
    "sigma above √m": (raw(sigma=[1.5, 0.1]), "sigma"),
    "NaN sigma": (raw(sigma=[NAN, 0.1]), "finite"),
    "infinite sigma": (raw(sigma=[INF, 0.1]), "finite"),
    "an older wire": (raw(wire_version=1), "wire"),
    "yesterday": (raw(time_ns=time.time_ns() - 86_400 * 10**9), "time"),
    "next year": (raw(time_ns=time.time_ns() + 365 * 86_400 * 10**9), "time"),
    "no time": (raw(time_ns=0), "time"),
    "least time": (raw(time_ns=-(2**63)), "time"),
    "cost above a whole node": (raw(cost=pb.Cost(value=[2.0, 0], precision=[1, 1])), "cost"),
    "negative cost": (raw(cost=pb.Cost(value=[-0.1, 0], precision=[1, 1])), "cost"),
    "NaN cost": (raw(cost=pb.Cost(value=[NAN, 0], precision=[1, 1])), "cost"),
    "negative precision": (raw(cost=pb.Cost(value=[0.1, 0], precision=[-1, 1])), "precision"),
    "infinite precision": (raw(cost=pb.Cost(value=[0.1, 0], precision=[INF, 1])), "precision"),
    "size zero": (raw(cost=pb.Cost(value=[0.1, 0], precision=[1, 1], size=[0.0, 1])), "size of a resource"),
    "cost of other length": (raw(cost=pb.Cost(value=[0.1], precision=[1])), "size"),
}


@pytest.fixture
def server() -> Aggregator:
    one = Aggregator(AggregatorSettings(), "test")
    one.exchange(raw(node="honest"), None)
    one.table.merge()
    one.render()
    return one


@pytest.mark.parametrize("name", HOSTILE)
def test_the_table(name, server):
    message, reason = HOSTILE[name]
    before = server.table.sums.root.copy()
    answer = pb.View.FromString(server.exchange(message, None))
    assert answer.rejected.startswith(f"{reason}:"), answer.rejected
    assert answer.nodes == 1 and list(answer.subspace.sigma) == pytest.approx([1.0, 0.2])  # still gets the view
    assert server.rejections.by_reason[reason].count == 1
    server.table.merge()
    assert len(server.table.nodes) == 1
    np.testing.assert_array_equal(server.table.sums.root, before)


def test_a_good_one_is_taken(server):
    assert not pb.View.FromString(server.exchange(raw(), None)).rejected
    assert not pb.View.FromString(server.exchange(raw(sigma=[], u=[]), None)).rejected  # only listening


def test_newer_peers_are_understood(server):
    """Unknown fields (here number 99) and resources nobody else has do not disturb."""
    unknown = b"\x9a\x06\x05hello"
    assert not pb.View.FromString(server.exchange(raw(node="new", resources=["cpu", "gpu"]) + unknown, None)).rejected
    server.table.merge()
    server.render()
    about, view = wire.read_view(server.exchange(raw(node="x"), None) + unknown, ("memory", "cpu"), (), 0.0)
    assert about.nodes == 2 and view.subspace.m == 2 and np.isnan(view.cost).all()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes(message):
    server = Aggregator(AggregatorSettings(), "test")
    assert pb.View.FromString(server.exchange(message, None)).rejected
    server.table.merge()
    server.render()


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-2, 2)
subspaces = st.builds(
    pb.Subspace,
    resources=st.lists(st.sampled_from(["cpu", "memory", "io", "", "\n"]) | st.text(max_size=5), max_size=5),
    u=st.lists(numbers, max_size=16),
    sigma=st.lists(numbers, max_size=4),
)
costs = st.builds(
    pb.Cost,
    value=st.lists(numbers, max_size=4),
    precision=st.lists(numbers, max_size=4),
    size=st.lists(numbers, max_size=4),
)
contributions = st.builds(
    pb.Contribution,
    node=st.text(max_size=8),
    subspace=subspaces | st.just(pb.Subspace(**GOOD)),
    cost=costs,
    samples=st.integers(0, 2**64 - 1),
    pods=st.integers(0, 2**32 - 1),
    leaving=st.booleans(),
    time_unix_nano=st.integers(-(2**63), 2**63 - 1) | st.just(time.time_ns()),
)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.lists(contributions, max_size=5))
def test_random_messages_leave_a_sound_view(messages):
    server = Aggregator(AggregatorSettings(max_skew_s=86_400), "test")
    for message in messages:
        server.exchange(message.SerializeToString(), None)
    server.table.merge()
    server.render()
    wire.read_view(server.exchange(b"", None), ("cpu", "memory"), (), 0.0)  # raises if the view were not sound


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=300)
    | st.builds(
        pb.View,
        subspace=subspaces | st.just(pb.Subspace(**GOOD)),
        resource_nodes=st.lists(st.integers(0, 9), max_size=3),
        cost=costs,
        nodes=st.integers(0, 2**32 - 1),
        silence_s=numbers,
    ).map(lambda m: m.SerializeToString())
)
def test_a_lying_aggregator_is_not_believed(answer):
    try:
        _, view = wire.read_view(answer, ("cpu", "memory"), (8.0, 16.0), 0.0)
    except Rejected:
        return
    if view is not None:
        assert np.isfinite(view.subspace.u).all() and np.isfinite(view.subspace.sigma).all()
        assert np.isfinite(view.precision).all() and not np.isinf(view.cost).any()


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=300)
    | st.builds(
        pb.Partial,
        aggregator=st.text(max_size=4),
        sum=subspaces | st.just(pb.Subspace(**GOOD)),
        nodes=st.integers(0, 2**32 - 1),
        incarnation=st.integers(0, 2**64 - 1),
        sequence=st.integers(0, 2**64 - 1),
        owned=st.lists(
            st.builds(
                pb.OwnedNode,
                node=st.just("honest") | st.text(max_size=3),
                time_unix_nano=st.integers(-(2**63), 2**63 - 1),
            ),
            max_size=3,
        ),
        cost=st.builds(pb.CostSums, weight=st.lists(numbers, max_size=2), first=st.lists(numbers, max_size=2)),
        owned_to=st.integers(0, 2**64 - 1),
    ).map(lambda m: m.SerializeToString())
)
def test_a_lying_peer_leaves_a_sound_view(partial):
    server = Aggregator(AggregatorSettings(), "test")
    server.exchange(raw(node="honest"), None)
    with contextlib.suppress(Rejected):
        server.table.apply_partial(*wire.read_partial(partial), 0.0)
    server.table.merge()
    server.render()
    server.table.partial("x").SerializeToString()
    wire.read_view(server.exchange(raw(node="honest"), None), ("cpu", "memory"), (), 0.0)  # raises if it were not sound


def test_the_reject_log_is_bounded(server):
    for i in range(500):
        server.exchange(raw(node=f"n{i}", time_ns=0), None)
    assert len(server.rejections._logged) <= 100
    assert server.rejections.by_reason["time"].count == 500
    assert server.rejections.by_reason["time"].last_node == "n499"


@pytest.mark.asyncio(loop_scope="session")
async def test_limits_of_a_real_process():
    """Oversized messages and garbage calls end with an error for the caller; others are served on."""
    async with aggregator(max_message_bytes=2048) as process, grpc.aio.insecure_channel(process.address) as channel:
        call = channel.unary_unary(f"/{wire.SERVICE}/Exchange")
        for message, code in ((b"\x0a" * 100_000, "RESOURCE_EXHAUSTED"),):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call(message, timeout=60)
            assert error.value.code().name == code
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary(f"/{wire.SERVICE}/Nonsense")(b"", timeout=60)
        assert error.value.code().name == "UNIMPLEMENTED"
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary(f"/{wire.SERVICE}/Share")(b"\xff\xff", timeout=60)
        assert error.value.code().name == "INVALID_ARGUMENT"
        given = Contribution(("cpu",), Subspace.of_batch([[0.5]]))
        answer = pb.View.FromString(await call(wire.write_contribution("n", given, time.time_ns()), timeout=60))
        assert not answer.rejected
