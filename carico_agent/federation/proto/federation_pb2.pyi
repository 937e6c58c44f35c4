# mypy: disable-error-code="type-arg"
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Subspace(_message.Message):
    __slots__ = ("resources", "u", "sigma")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    U_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedScalarFieldContainer[str]
    u: _containers.RepeatedScalarFieldContainer[float]
    sigma: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, resources: _Optional[_Iterable[str]] = ..., u: _Optional[_Iterable[float]] = ..., sigma: _Optional[_Iterable[float]] = ...) -> None: ...

class Cost(_message.Message):
    __slots__ = ("value", "precision", "size")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedScalarFieldContainer[float]
    precision: _containers.RepeatedScalarFieldContainer[float]
    size: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, value: _Optional[_Iterable[float]] = ..., precision: _Optional[_Iterable[float]] = ..., size: _Optional[_Iterable[float]] = ...) -> None: ...

class Contribution(_message.Message):
    __slots__ = ("node", "subspace", "samples", "cost", "pods", "time_unix_nano", "leaving", "version", "kinds", "room", "seen_incarnation", "seen_sequence", "seen_kinds", "fits", "limiting", "wire")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SUBSPACE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    SEEN_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEEN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEEN_KINDS_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    LIMITING_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    node: str
    subspace: Subspace
    samples: int
    cost: Cost
    pods: int
    time_unix_nano: int
    leaving: bool
    version: str
    kinds: bytes
    room: _containers.RepeatedScalarFieldContainer[float]
    seen_incarnation: int
    seen_sequence: int
    seen_kinds: int
    fits: _containers.RepeatedScalarFieldContainer[int]
    limiting: _containers.RepeatedScalarFieldContainer[int]
    wire: int
    def __init__(self, node: _Optional[str] = ..., subspace: _Optional[_Union[Subspace, _Mapping]] = ..., samples: _Optional[int] = ..., cost: _Optional[_Union[Cost, _Mapping]] = ..., pods: _Optional[int] = ..., time_unix_nano: _Optional[int] = ..., leaving: _Optional[bool] = ..., version: _Optional[str] = ..., kinds: _Optional[bytes] = ..., room: _Optional[_Iterable[float]] = ..., seen_incarnation: _Optional[int] = ..., seen_sequence: _Optional[int] = ..., seen_kinds: _Optional[int] = ..., fits: _Optional[_Iterable[int]] = ..., limiting: _Optional[_Iterable[int]] = ..., wire: _Optional[int] = ...) -> None: ...

class KindReport(_message.Message):
    __slots__ = ("kinds",)
    KINDS_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedCompositeFieldContainer[KindCost]
    def __init__(self, kinds: _Optional[_Iterable[_Union[KindCost, _Mapping]]] = ...) -> None: ...

class KindCost(_message.Message):
    __slots__ = ("kind", "cost", "spread", "pods_seen", "arrivals", "nodes", "profile", "median_life_s", "p90_life_s", "ended")
    KIND_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    PODS_SEEN_FIELD_NUMBER: _ClassVar[int]
    ARRIVALS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_LIFE_S_FIELD_NUMBER: _ClassVar[int]
    P90_LIFE_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    cost: _containers.RepeatedScalarFieldContainer[float]
    spread: _containers.RepeatedScalarFieldContainer[float]
    pods_seen: int
    arrivals: float
    nodes: int
    profile: bytes
    median_life_s: float
    p90_life_s: float
    ended: int
    def __init__(self, kind: _Optional[str] = ..., cost: _Optional[_Iterable[float]] = ..., spread: _Optional[_Iterable[float]] = ..., pods_seen: _Optional[int] = ..., arrivals: _Optional[float] = ..., nodes: _Optional[int] = ..., profile: _Optional[bytes] = ..., median_life_s: _Optional[float] = ..., p90_life_s: _Optional[float] = ..., ended: _Optional[int] = ...) -> None: ...

class KindTable(_message.Message):
    __slots__ = ("resources", "kinds", "sequence")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedScalarFieldContainer[str]
    kinds: _containers.RepeatedCompositeFieldContainer[KindCost]
    sequence: int
    def __init__(self, resources: _Optional[_Iterable[str]] = ..., kinds: _Optional[_Iterable[_Union[KindCost, _Mapping]]] = ..., sequence: _Optional[int] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("subspace", "resource_nodes", "cost", "nodes", "sequence", "incarnation", "aggregator", "incomplete", "rejected", "silence_s", "pushed", "unchanged", "kinds", "wire")
    SUBSPACE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NODES_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    SILENCE_S_FIELD_NUMBER: _ClassVar[int]
    PUSHED_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    subspace: Subspace
    resource_nodes: _containers.RepeatedScalarFieldContainer[int]
    cost: Cost
    nodes: int
    sequence: int
    incarnation: int
    aggregator: str
    incomplete: bool
    rejected: str
    silence_s: float
    pushed: bool
    unchanged: bool
    kinds: KindTable
    wire: int
    def __init__(self, subspace: _Optional[_Union[Subspace, _Mapping]] = ..., resource_nodes: _Optional[_Iterable[int]] = ..., cost: _Optional[_Union[Cost, _Mapping]] = ..., nodes: _Optional[int] = ..., sequence: _Optional[int] = ..., incarnation: _Optional[int] = ..., aggregator: _Optional[str] = ..., incomplete: _Optional[bool] = ..., rejected: _Optional[str] = ..., silence_s: _Optional[float] = ..., pushed: _Optional[bool] = ..., unchanged: _Optional[bool] = ..., kinds: _Optional[_Union[KindTable, _Mapping]] = ..., wire: _Optional[int] = ...) -> None: ...

class OwnedNode(_message.Message):
    __slots__ = ("node", "time_unix_nano")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    node: str
    time_unix_nano: int
    def __init__(self, node: _Optional[str] = ..., time_unix_nano: _Optional[int] = ...) -> None: ...

class CostSums(_message.Message):
    __slots__ = ("weight", "first", "second", "size")
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    weight: _containers.RepeatedScalarFieldContainer[float]
    first: _containers.RepeatedScalarFieldContainer[float]
    second: _containers.RepeatedScalarFieldContainer[float]
    size: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, weight: _Optional[_Iterable[float]] = ..., first: _Optional[_Iterable[float]] = ..., second: _Optional[_Iterable[float]] = ..., size: _Optional[_Iterable[float]] = ...) -> None: ...

class Partial(_message.Message):
    __slots__ = ("aggregator", "incarnation", "sequence", "sum", "nodes", "resource_nodes", "cost", "owned", "owned_to", "more_owned", "seen_incarnation", "seen_owned", "kinds")
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NODES_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    OWNED_TO_FIELD_NUMBER: _ClassVar[int]
    MORE_OWNED_FIELD_NUMBER: _ClassVar[int]
    SEEN_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEEN_OWNED_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    aggregator: str
    incarnation: int
    sequence: int
    sum: Subspace
    nodes: int
    resource_nodes: _containers.RepeatedScalarFieldContainer[int]
    cost: CostSums
    owned: _containers.RepeatedCompositeFieldContainer[OwnedNode]
    owned_to: int
    more_owned: bool
    seen_incarnation: int
    seen_owned: int
    kinds: KindTable
    def __init__(self, aggregator: _Optional[str] = ..., incarnation: _Optional[int] = ..., sequence: _Optional[int] = ..., sum: _Optional[_Union[Subspace, _Mapping]] = ..., nodes: _Optional[int] = ..., resource_nodes: _Optional[_Iterable[int]] = ..., cost: _Optional[_Union[CostSums, _Mapping]] = ..., owned: _Optional[_Iterable[_Union[OwnedNode, _Mapping]]] = ..., owned_to: _Optional[int] = ..., more_owned: _Optional[bool] = ..., seen_incarnation: _Optional[int] = ..., seen_owned: _Optional[int] = ..., kinds: _Optional[_Union[KindTable, _Mapping]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("most_nodes",)
    MOST_NODES_FIELD_NUMBER: _ClassVar[int]
    most_nodes: int
    def __init__(self, most_nodes: _Optional[int] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("node", "age_s", "magnitude", "pods", "version")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    MAGNITUDE_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    node: str
    age_s: float
    magnitude: float
    pods: int
    version: str
    def __init__(self, node: _Optional[str] = ..., age_s: _Optional[float] = ..., magnitude: _Optional[float] = ..., pods: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class PeerStatus(_message.Message):
    __slots__ = ("address", "aggregator", "age_s", "nodes", "condition")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    address: str
    aggregator: str
    age_s: float
    nodes: int
    condition: str
    def __init__(self, address: _Optional[str] = ..., aggregator: _Optional[str] = ..., age_s: _Optional[float] = ..., nodes: _Optional[int] = ..., condition: _Optional[str] = ...) -> None: ...

class Reject(_message.Message):
    __slots__ = ("reason", "count", "last_node", "last_detail")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_NODE_FIELD_NUMBER: _ClassVar[int]
    LAST_DETAIL_FIELD_NUMBER: _ClassVar[int]
    reason: str
    count: int
    last_node: str
    last_detail: str
    def __init__(self, reason: _Optional[str] = ..., count: _Optional[int] = ..., last_node: _Optional[str] = ..., last_detail: _Optional[str] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("aggregator", "up_s", "method", "view", "local_nodes", "streams", "nodes", "peers", "rejects", "exchanges")
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    UP_S_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    LOCAL_NODES_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    REJECTS_FIELD_NUMBER: _ClassVar[int]
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    aggregator: str
    up_s: float
    method: str
    view: View
    local_nodes: int
    streams: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    peers: _containers.RepeatedCompositeFieldContainer[PeerStatus]
    rejects: _containers.RepeatedCompositeFieldContainer[Reject]
    exchanges: int
    def __init__(self, aggregator: _Optional[str] = ..., up_s: _Optional[float] = ..., method: _Optional[str] = ..., view: _Optional[_Union[View, _Mapping]] = ..., local_nodes: _Optional[int] = ..., streams: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., peers: _Optional[_Iterable[_Union[PeerStatus, _Mapping]]] = ..., rejects: _Optional[_Iterable[_Union[Reject, _Mapping]]] = ..., exchanges: _Optional[int] = ...) -> None: ...

class FitRequest(_message.Message):
    __slots__ = ("kind", "most_nodes")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MOST_NODES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    most_nodes: int
    def __init__(self, kind: _Optional[str] = ..., most_nodes: _Optional[int] = ...) -> None: ...

class NodeFit(_message.Message):
    __slots__ = ("node", "fits", "limiting")
    NODE_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    LIMITING_FIELD_NUMBER: _ClassVar[int]
    node: str
    fits: int
    limiting: str
    def __init__(self, node: _Optional[str] = ..., fits: _Optional[int] = ..., limiting: _Optional[str] = ...) -> None: ...

class LimitCount(_message.Message):
    __slots__ = ("resource", "nodes")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    resource: str
    nodes: int
    def __init__(self, resource: _Optional[str] = ..., nodes: _Optional[int] = ...) -> None: ...

class FitReply(_message.Message):
    __slots__ = ("kind", "known", "total", "nodes_fit", "nodes_asked", "nodes_silent", "nodes_elsewhere", "limits", "nodes", "resources", "cost")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    NODES_FIT_FIELD_NUMBER: _ClassVar[int]
    NODES_ASKED_FIELD_NUMBER: _ClassVar[int]
    NODES_SILENT_FIELD_NUMBER: _ClassVar[int]
    NODES_ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    kind: str
    known: bool
    total: int
    nodes_fit: int
    nodes_asked: int
    nodes_silent: int
    nodes_elsewhere: int
    limits: _containers.RepeatedCompositeFieldContainer[LimitCount]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeFit]
    resources: _containers.RepeatedScalarFieldContainer[str]
    cost: KindCost
    def __init__(self, kind: _Optional[str] = ..., known: _Optional[bool] = ..., total: _Optional[int] = ..., nodes_fit: _Optional[int] = ..., nodes_asked: _Optional[int] = ..., nodes_silent: _Optional[int] = ..., nodes_elsewhere: _Optional[int] = ..., limits: _Optional[_Iterable[_Union[LimitCount, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[NodeFit, _Mapping]]] = ..., resources: _Optional[_Iterable[str]] = ..., cost: _Optional[_Union[KindCost, _Mapping]] = ...) -> None: ...

class SavedNode(_message.Message):
    __slots__ = ("contribution", "received_unix_nano")
    CONTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    contribution: bytes
    received_unix_nano: int
    def __init__(self, contribution: _Optional[bytes] = ..., received_unix_nano: _Optional[int] = ...) -> None: ...

class SavedState(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[SavedNode]
    def __init__(self, nodes: _Optional[_Iterable[_Union[SavedNode, _Mapping]]] = ...) -> None: ...
