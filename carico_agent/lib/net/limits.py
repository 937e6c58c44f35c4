"""Who asks, what they may do, and how often. Pure: time is an argument.

Why by peer and not by connection: a client opens as many connections as it likes. Root and the agent's own user are
not limited; they could stop the agent anyway.
"""

from collections import Counter
from dataclasses import dataclass

from carico_agent.lib.net.buckets import TokenBucket

MAX_BUCKETS = 256


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a connection."""

    name: str
    """"uid 1000" on the unix socket, the address or the certificate's name on TCP."""
    trusted: bool = False
    """Root or the agent's own user: may do everything, without limits."""
    may_reserve: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """Per peer, unless it says of all; 0 switches one off."""

    connections: int = 64
    requests_per_s: float = 100.0
    connects_per_s: float = 100.0
    """New connections without TLS, two seconds' worth at once. One costs 0.2 ms of CPU to accept and to end."""
    handshakes_per_s: float = 20.0
    """New connections with TLS, two seconds' worth at once. A handshake costs 1.2 ms of CPU with an RSA key."""
    all_handshakes_per_s: float = 100.0
    """The same, of all peers together."""
    max_connections: int = 512
    """Connections of all peers together."""


class RateLimiter:
    """Counts connections and requests per peer. A second's worth of requests may come at once.

    >>> limiter, someone = RateLimiter(Limits(connections=1, requests_per_s=2)), Peer("uid 1000")
    >>> limiter.connect(someone), limiter.connect(someone)
    (True, False)
    >>> [limiter.request(someone, 10.0) for _ in range(3)], limiter.request(someone, 10.5)
    ([0.0, 0.0, 0.5], 0.0)
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()
        """What was refused so far: "connections", "requests"."""
        self._connections: Counter[str] = Counter()
        self._buckets: dict[str, TokenBucket] = {}

    def allow(self, limits: Limits) -> None:
        """From now on."""
        self.limits = limits

    def connect(self, peer: Peer) -> bool:
        """A connection begins; False: one too many. Those that were let in must `disconnect`."""
        most = self.limits.connections
        if most and not peer.trusted and self._connections[peer.name] >= most:
            self.refused["connections"] += 1
            return False
        self._connections[peer.name] += 1
        return True

    def disconnect(self, peer: Peer) -> None:
        self._connections[peer.name] -= 1
        if not self._connections[peer.name]:
            del self._connections[peer.name]

    def request(self, peer: Peer, now_s: float) -> float:
        """A request: 0 when it may pass, else the seconds after which it might."""
        rate = self.limits.requests_per_s
        if not rate or peer.trusted:
            return 0.0
        bucket = self._buckets.get(peer.name)
        if bucket is None:
            bucket = self._buckets[peer.name] = TokenBucket(rate, max(1.0, rate))
        bucket.per_s, bucket.burst = rate, max(1.0, rate)
        wait_s = bucket.take(now_s)
        if wait_s:
            self.refused["requests"] += 1
        if len(self._buckets) > MAX_BUCKETS:  # a full bucket says nothing: peers that come and go leave nothing behind
            self._buckets = {name: one for name, one in self._buckets.items() if not one.is_full(now_s)}
        return wait_s
