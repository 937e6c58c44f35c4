"""Settings of federation: the node's side and the aggregator."""

from dataclasses import dataclass
from typing import Annotated, Literal

from carico_agent.plugin_api.declare import Range


@dataclass(frozen=True)
class FederationSettings:
    """Learning from the other nodes through an aggregator. Without one the node works alone."""

    aggregators: tuple[str, ...] = ()
    """Addresses of aggregators, "host:port" or "unix:/path"; the next one is tried when one fails. None: work alone."""

    transport: Literal["stream", "unary"] = "stream"
    """How to exchange: one long call (cheaper for the aggregator), or one call each time (for load balancers)."""

    weight: Annotated[float, Range(0.0, 1.0)] = 0.5
    """Weight of the cluster's view in the unit this node's Capacity is counted in; 0: only its own."""

    period_s: Annotated[float, Range(0.1, 60.0)] = 1.0
    """Least time between two exchanges while something changes [s]."""

    heartbeat_s: Annotated[float, Range(0.5, 300.0)] = 5.0
    """Time between two exchanges while nothing changes [s]; less if the aggregator's silence limit asks for it."""

    tolerance: Annotated[float, Range(0.0, 1.0)] = 0.01
    """A change of usage smaller than this share of the node does not count as a change."""

    answer_s: Annotated[float, Range(0.1, 60.0)] = 2.0
    """An aggregator that does not answer within this time counts as lost [s]."""

    max_age_s: Annotated[float, Range(1.0, 3600.0)] = 60.0
    """A view older than this is not used any more [s]."""

    tls_ca: str = ""
    """Certificates that aggregators' certificates are checked against (PEM file). Given, all three are needed: mTLS."""

    tls_cert: str = ""
    """This node's certificate (PEM file); its common name is this node's name. Read again when it changes."""

    tls_key: str = ""
    """Key of it (PEM file)."""

    tls_server_name: str = ""
    """Name the aggregator's certificate must carry. Empty: the host of its address."""

    allow_plaintext: bool = False
    """Connect without TLS to addresses other than loopback and unix sockets. Anyone in between may then lie."""


@dataclass(frozen=True)
class AggregatorSettings:
    """The aggregation server, `carico aggregator`."""

    listen: str = "127.0.0.1:7420"
    """Address for nodes and other aggregators, "host:port" or "unix:/path"."""

    name: str = ""
    """Name under which other aggregators know this one; must differ among them. Empty: host name and address."""

    peers: tuple[str, ...] = ()
    """Other aggregators. Each pair needs a connection, from either side."""

    http: str = ""
    """Address for /metrics and /healthz, "host:port" or "unix:/path". Empty: none."""

    state: str = ""
    """File in which the nodes' last contributions survive a restart. Empty: after one, all have to contribute again."""

    method: Literal["moments", "pairwise"] = "moments"
    """How contributions become one view: the exact mean, or pairwise merges as they come, for comparison."""

    silence_s: Annotated[float, Range(1.0, 3600.0)] = 20.0
    """A node that sent nothing for this long is taken out [s]."""

    merge_period_s: Annotated[float, Range(0.01, 10.0)] = 0.1
    """Least time between two computations of the view [s]; it grows so that they never take more than 5 % of a core."""

    share_period_s: Annotated[float, Range(0.05, 60.0)] = 0.5
    """Time between two exchanges with another aggregator [s]."""

    peer_silence_s: Annotated[float, Range(1.0, 3600.0)] = 5.0
    """The nodes of an aggregator that sent nothing for this long are taken out [s]."""

    max_nodes: Annotated[int, Range(1, 1_000_000)] = 20_000
    """Nodes beyond this number are rejected."""

    max_message_bytes: Annotated[int, Range(1024, 4_194_304)] = 65_536
    """Larger messages are refused. A node's is about 300 bytes, with 32 workloads 3 kB."""

    max_connections: Annotated[int, Range(1, 1_000_000)] = 20_000
    """Connections beyond this number are refused."""

    address_connections: Annotated[int, Range(0, 1_000_000)] = 256
    """Connections of one address that have made no call yet (their handshake never ends, or nothing is asked), counted
    about once a second. More for thousands of nodes behind one address. 0: any number."""

    handshake_s: Annotated[float, Range(0.1, 120.0)] = 5.0
    """A connection whose TLS and HTTP/2 handshakes take longer than this is closed [s]."""

    peer_calls: Annotated[int, Range(0, 1000)] = 8
    """Streams that one certificate (without TLS: one connection) may hold open; a node needs one. 0: any number."""

    peer_messages_per_s: Annotated[float, Range(0.0, 10_000.0)] = 20.0
    """Messages per second of one certificate (without TLS: of one connection); a node sends one. 0: any number."""

    max_skew_s: Annotated[float, Range(1.0, 86_400.0)] = 300.0
    """A contribution whose time differs from ours by more than this is rejected [s]."""

    rank: Annotated[int, Range(0, 16)] = 0
    """Directions in the view; 0: all."""

    tls_ca: str = ""
    """Certificates that nodes' certificates are checked against (PEM file). Given, all three are needed: mTLS."""

    tls_cert: str = ""
    """This aggregator's certificate (PEM file). Read again when it changes."""

    tls_key: str = ""
    """Key of it (PEM file)."""

    tls_peer_names: tuple[str, ...] = ()
    """Common names of the certificates that may act as an aggregator; others are nodes only."""

    allow_plaintext: bool = False
    """Listen without TLS on addresses other than loopback and unix sockets. Anyone may then pose as any node."""
