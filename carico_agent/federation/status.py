"""Questions to a running aggregator: how it is, and how many more Pods of a workload fit on its nodes."""

from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from carico_agent.federation import wire
from carico_agent.federation.channel import open_channel, same
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.lib.net.tls import TlsFiles


async def fetch_status(
    address: str, tls: TlsFiles | None = None, server_name: str = "", timeout_s: float = 5.0
) -> dict[str, Any]:
    """The aggregator's status as plain data; raises ConnectionError with the reason if it does not answer."""
    raw = await _call(address, "Status", pb.StatusRequest().SerializeToString(), tls, server_name, timeout_s)
    return _plain(pb.StatusReply.FromString(raw))


async def fetch_fit(
    address: str, workload: str, tls: TlsFiles | None = None, server_name: str = "", timeout_s: float = 5.0
) -> dict[str, Any]:
    """How many more Pods of `workload` the aggregator's nodes can take, as plain data; raises ConnectionError.

    Keys as in FitReply: known, total, nodes_fit, nodes_asked, nodes_silent, nodes_elsewhere, limits, nodes, resources,
    cost.
    """
    raw = await _call(address, "Fit", pb.FitRequest(workload=workload).SerializeToString(), tls, server_name, timeout_s)
    return _plain(pb.FitReply.FromString(raw))


async def _call(
    address: str, method: str, request: bytes, tls: TlsFiles | None, server_name: str, timeout_s: float
) -> bytes:
    options: list[tuple[str, int | str]] = [("grpc.max_receive_message_length", 4_194_304)]
    async with open_channel(address, tls, server_name, options) as channel:
        try:
            raw: bytes = await channel.unary_unary(f"/{wire.SERVICE}/{method}", same, same)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise ConnectionError(f"{address}: {error.details() or error.code().name}") from error
    return raw


def _plain(reply: Message) -> dict[str, Any]:
    return MessageToDict(reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def describe_fit(fit: dict[str, Any]) -> str:
    """A fit for people.

    >>> print(describe_fit({"workload": "shop/web", "known": True, "total": 37, "nodes_fit": 12, "nodes_asked": 14,
    ...   "nodes_silent": 1, "nodes_elsewhere": 0, "limits": [{"resource": "memory", "nodes": 9}]}))
    room for 37 more of shop/web on 12 of 14 nodes; limited by memory on 9; 1 without readings
    """
    if not fit["known"]:
        return f"no node has seen a Pod of {fit['workload']}"
    text = f"room for {fit['total']} more of {fit['workload']} on {fit['nodes_fit']} of {fit['nodes_asked']} nodes"
    for limit in fit["limits"]:
        text += f"; limited by {limit['resource']} on {limit['nodes']}"
    if silent := fit["nodes_silent"]:
        text += f"; {silent} without readings"
    if elsewhere := fit["nodes_elsewhere"]:
        text += f"; {elsewhere} nodes belong to other aggregators"
    return text


def describe(status: dict[str, Any]) -> str:
    """A status for people.

    >>> print(describe({"aggregator": "a", "up_s": 5, "method": "moments", "local_nodes": 1, "streams": 1,
    ...   "exchanges": "7", "nodes": [{"node": "n", "age_s": 0.4, "magnitude": 0.5, "pods": 3}], "peers": [],
    ...   "rejects": [], "view": {"nodes": 1, "sequence": "3", "incomplete": False, "subspace": {"resources": ["cpu"],
    ...   "u": [1.0], "sigma": [0.5]}, "cost": {"value": [0.1], "precision": [400]}}}))
    a: up 5 s, moments, 1 nodes (1 here, 1 streams), 7 exchanges, view 3
    workload: magnitude 0.500, direction cpu 1.000
    one Pod:  cpu 0.1 ± 0.05
    node n: 0.4 s ago, magnitude 0.500, 3 Pods
    """
    view = status["view"]
    space, cost = view.get("subspace", {}), view.get("cost", {})
    names, rank = space.get("resources", []), len(space.get("sigma", []))
    lines = [
        f"{status['aggregator']}: up {status['up_s']:.0f} s, {status['method']}, {view['nodes']} nodes "
        f"({status['local_nodes']} here, {status['streams']} streams), {status['exchanges']} exchanges, "
        f"view {view['sequence']}{', incomplete' if view['incomplete'] else ''}"
    ]
    if rank:
        direction = ", ".join(f"{name} {space['u'][i * rank]:.3f}" for i, name in enumerate(names))
        lines.append(f"workload: magnitude {space['sigma'][0]:.3f}, direction {direction}")
    known = [
        f"{name} {cost['value'][i]:.3g} ± {cost['precision'][i] ** -0.5:.2g}"
        for i, name in enumerate(names)
        if cost.get("precision") and cost["precision"][i] > 0
    ]
    lines += [f"one Pod:  {', '.join(known)}"] if known else []
    lines += [
        f"node {n['node']}: {n['age_s']:.1f} s ago, magnitude {n['magnitude']:.3f}, {n['pods']} Pods"
        for n in status["nodes"]
    ]
    lines += [
        f"peer {p['aggregator'] or p['address']}: {p['condition']}, {p['nodes']} nodes, {p['age_s']:.1f} s ago"
        for p in status["peers"]
    ]
    lines += [
        f"rejected {r['count']} x {r['reason']}, last {r['last_node']}: {r['last_detail']}" for r in status["rejects"]
    ]
    return "\n".join(lines)
