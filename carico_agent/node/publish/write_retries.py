"""When a failed write of the Node object is tried again, and that the API server is back."""

from math import inf

from carico_agent.lib.kube.errors import KubeError, Unreachable
from carico_agent.lib.kube.health import Health
from carico_agent.lib.supervise.backoff import Backoff

RETRY_DELAYS = Backoff(first_s=1.0, factor=2.0, max_s=60.0)
"""After a refused write."""


class WriteRetries:
    """`reason` says why to write although nothing has changed. Time is an argument."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._was_well, self._server_returned = True, False
        self._failures = 0
        self.pending = False  # a write failed: it is tried again, whatever the throttle says
        self.at_s = -inf
        """Nothing is written before this time."""

    def observe(self) -> None:
        """Take note of the API server's return."""
        well = self._health.well
        self._server_returned = well and (self._server_returned or not self._was_well)
        self._was_well = well

    @property
    def reason(self) -> str | None:
        if self._server_returned:
            return "the API server is back"
        # also a server that is back but does not know our rights yet: 403 for a second or two
        return "the last write failed" if self.pending else None

    def succeeded(self) -> None:
        self._health.good("write")
        self._failures, self.pending, self._server_returned = 0, False, False
        self._was_well = self._health.well

    def failed(self, now_s: float, error: KubeError) -> None:
        self._health.bad("write", error)
        self.pending = True
        if not isinstance(error, Unreachable):  # for that one the client itself makes us wait
            self._failures += 1
            self.at_s = now_s + RETRY_DELAYS.delay_s(self._failures)

    def at_once(self) -> None:
        """Our node is another one: what was refused for the old one may be tried."""
        self.at_s = -inf
