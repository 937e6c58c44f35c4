"""Who asks, what they may do, and how often. Pure: time is an argument.

Why by uid and not by connection: a client opens as many connections as it likes. Root and the agent's own user are
not limited; they could stop the agent anyway.
"""

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Client:
    """Who is at the other end of a connection."""

    name: str
    """"uid 1000" on the unix socket, the address or the certificate's name on TCP."""
    trusted: bool = False
    """Root or the agent's own user: may do everything, without limits."""
    may_reserve: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """Per client; 0 switches one off."""

    connections: int = 64
    requests_per_s: float = 100.0
    reservations: int = 200


class Gate:
    """Counts connections and requests per client. One token bucket each: a second's worth may come at once.

    >>> gate, someone = Gate(Limits(connections=1, requests_per_s=2)), Client("uid 1000")
    >>> gate.enter(someone), gate.enter(someone)
    (True, False)
    >>> [gate.ask(someone, 10.0), gate.ask(someone, 10.0), gate.ask(someone, 10.0)], gate.ask(someone, 10.5)
    ([0.0, 0.0, 0.5], 0.0)
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()
        """What was refused so far: "connections", "requests"."""
        self._connections: Counter[str] = Counter()
        self._buckets: dict[str, tuple[float, float]] = {}

    def enter(self, client: Client) -> bool:
        """A connection begins; False: one too many. Those that were let in must `leave`."""
        most = self.limits.connections
        if most and not client.trusted and self._connections[client.name] >= most:
            self.refused["connections"] += 1
            return False
        self._connections[client.name] += 1
        return True

    def leave(self, client: Client) -> None:
        self._connections[client.name] -= 1
        if not self._connections[client.name]:
            del self._connections[client.name]

    def ask(self, client: Client, now_s: float) -> float:
        """A request: 0 when it may pass, else the seconds after which it might."""
        rate = self.limits.requests_per_s
        if not rate or client.trusted:
            return 0.0
        most = max(1.0, rate)
        left, then_s = self._buckets.get(client.name, (most, now_s))
        left = min(most, left + (now_s - then_s) * rate)
        passes = left >= 1.0
        self._buckets[client.name] = (left - passes, now_s)
        self._forget(now_s)
        if not passes:
            self.refused["requests"] += 1
        return 0.0 if passes else (1.0 - left) / rate

    def _forget(self, now_s: float) -> None:
        """A bucket that is full again says nothing: clients that come and go leave nothing behind."""
        if len(self._buckets) > 256:
            self._buckets = {name: bucket for name, bucket in self._buckets.items() if now_s - bucket[1] < 2.0}
