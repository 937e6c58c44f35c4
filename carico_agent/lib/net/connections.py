"""How many connections a server holds, and how fast it takes new ones. Pure: time is an argument.

Every listener of every daemon counts a connection from accept to its end, by where it comes from (its *origin*: the
user id on a unix socket, the address on TCP), before a handshake or a transport costs anything.

Why a share and not only a limit for all: the client that opens the last allowed connection would lock all others out.
When the server is full, the origin that holds most gives up its oldest connection, unless the newcomer would then hold
as many. Why new connections wait for a second before they are refused: an API server opens hundreds at once when many
Pods are bound, and none of them is an attack. A waiting connection is a descriptor, no buffers.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable

from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.net.limits import Limits, Peer, RateLimiter

MAX_WAIT_S = 1.0
"""A connection waits this long for its turn at most [s]."""
MAX_ORIGINS = 4096
"""Origins whose rate is remembered; the one that was seen longest ago is forgotten."""


def nothing() -> None:
    """For a connection that has nothing to abort yet."""


class Held:
    """One connection, from accept to its end."""

    __slots__ = ("_connections", "abort", "origin")

    def __init__(self, connections: "HeldConnections", origin: Peer) -> None:
        self._connections: HeldConnections | None = connections
        self.origin = origin
        self.abort: Callable[[], None] = nothing
        """How to end it at once."""

    def release(self) -> None:
        """It has ended. Any number of times."""
        if self._connections is not None:
            self._connections.remove(self)
            self._connections = None


class HeldConnections:
    """All connections of one server. The limits are those of `limiter`, which may change.

    >>> server = HeldConnections(RateLimiter(Limits(connections=2, max_connections=3, connects_per_s=0)))
    >>> a, b = Peer("10.0.0.1"), Peer("10.0.0.2")
    >>> [server.admit(a, 0.0, tls=True) is not None for _ in range(3)], len(server)
    ([True, True, False], 2)
    >>> server.admit(b, 0.0, tls=True) is not None, len(server), server.refused["connections"]
    (True, 3, 1)
    """

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self.refused: Counter[str] = Counter()
        """What was refused or ended so far: "connections", "rate", "full", "evicted"."""
        self._held: dict[str, dict[Held, None]] = {}  # by origin, the oldest first
        self._total = 0
        self._rates: OrderedDict[str, TokenBucket] = OrderedDict()
        self._handshakes = TokenBucket(1.0, 1.0)

    def __len__(self) -> int:
        return self._total

    def admit(self, origin: Peer, now_s: float, tls: bool) -> tuple[Held, float] | None:
        """A connection has been accepted: it counts, and is served after so many seconds. None: it is refused.

        How many an origin may hold is checked here for TLS only. A plain connection costs little until it is served,
        and its client then reads why it is refused.
        """
        limits = self._limiter.limits
        if tls and limits.connections and self.of(origin) >= limits.connections:
            self.refused["connections"] += 1
            return None
        wait_s = 0.0 if origin.trusted else self._reserve(origin, limits, now_s, tls)
        if wait_s is None:
            self.refused["rate"] += 1
            return None
        if not self._make_room(origin, limits.max_connections):
            self.refused["full"] += 1
            return None
        held = Held(self, origin)
        self._held.setdefault(origin.name, {})[held] = None
        self._total += 1
        return held, wait_s

    def of(self, origin: Peer) -> int:
        """How many this origin holds."""
        return len(self._held.get(origin.name, ()))

    def remove(self, held: Held) -> None:
        own = self._held[held.origin.name]
        del own[held]
        self._total -= 1
        if not own:
            del self._held[held.origin.name]

    def _reserve(self, origin: Peer, limits: Limits, now_s: float, tls: bool) -> float | None:
        """How long this connection waits for its turn [s]; None: for too long."""
        needed = []
        if per_s := limits.handshakes_per_s if tls else limits.connects_per_s:
            needed.append(self._rate_of(origin.name, per_s))
        if tls and limits.all_handshakes_per_s:
            self._handshakes.set_rate(limits.all_handshakes_per_s, limits.all_handshakes_per_s)
            needed.append(self._handshakes)
        if any(bucket.wait_s(now_s) > MAX_WAIT_S for bucket in needed):
            return None
        return max((bucket.reserve(now_s) for bucket in needed), default=0.0)

    def _rate_of(self, name: str, per_s: float) -> TokenBucket:
        bucket = self._rates.pop(name, None) or TokenBucket(per_s, 2 * per_s)
        bucket.set_rate(per_s, 2 * per_s)
        self._rates[name] = bucket
        if len(self._rates) > MAX_ORIGINS:
            self._rates.popitem(last=False)
        return bucket

    def _make_room(self, origin: Peer, max_connections: int) -> bool:
        """Whether there is room for one more connection of `origin`, if need be after ending another one's."""
        if origin.trusted or not max_connections or self._total < max_connections:
            return True
        heaviest = max(self._held.values(), key=len)
        oldest = next(iter(heaviest))
        if len(heaviest) <= self.of(origin) + 1 or oldest.origin.trusted:
            return False
        self.refused["evicted"] += 1
        oldest.release()
        oldest.abort()
        return True
