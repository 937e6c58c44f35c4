"""What a client of our HTTP/2 server may cost: one account per connection. Pure: time is an argument.

Every frame takes from the patience, headers by their size; time and whole messages give it back. So floods of pings,
settings, resets, continuations and crumbs of data end by one rule, not by one for each attack that has a name. A real
client sends about four frames with a message. Bytes of unfinished messages are bounded over all streams together:
1,000 streams with 64 kB each would be 64 MB.
"""

from carico_agent.federation.frames import CALM, Fault

MOST = 1000.0
PER_S = 100.0
PER_MESSAGE = 8.0
HEADER_BYTES = 256
MOST_HELD_BYTES = 1 << 20


class Patience:
    """Raises Fault when the client has used up what it had.

    >>> patience = Patience(0.0)
    >>> for _ in range(1001): patience.frame()
    Traceback (most recent call last):
    carico_agent.federation.frames.Fault: too many frames, too few messages
    """

    __slots__ = ("_left", "heard_s", "held_bytes", "now_s")

    def __init__(self, now_s: float) -> None:
        self._left = MOST
        self.now_s = self.heard_s = now_s
        """`heard_s`: when the last whole message came. Other bytes do not count: crumbs keep no connection open."""
        self.held_bytes = 0

    def look(self, now_s: float) -> None:
        """Bytes came."""
        self._left = min(MOST, self._left + PER_S * (now_s - self.now_s))
        self.now_s = now_s

    def frame(self) -> None:
        self._spend(1.0)

    def headers(self, size: int) -> None:
        """Decoding them is the dearest thing a client can ask for: 16 kB take 30 ms."""
        self._spend(size / HEADER_BYTES)

    def message(self) -> None:
        self._left = min(MOST, self._left + PER_MESSAGE)
        self.heard_s = self.now_s

    def hold(self, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        if self.held_bytes > MOST_HELD_BYTES:
            raise Fault(CALM, "too many unfinished messages")

    def _spend(self, amount: float) -> None:
        self._left -= amount
        if self._left < 0:
            raise Fault(CALM, "too many frames, too few messages")
