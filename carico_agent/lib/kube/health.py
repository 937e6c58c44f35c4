"""How the conversation with the API server goes: one line in the log when it starts failing, one when it heals."""

import logging
import time

from carico_agent.lib.kube.errors import KubeError, Refused, Unreachable

log = logging.getLogger(__name__)


class Health:
    """Troubles by part (a watch, the writes). Several parts that fail for one reason are logged once."""

    def __init__(self, name: str, fine: str = "fine") -> None:
        self._name, self._fine = name, fine
        self._troubles: dict[str, str] = {}
        self._logged: set[str] = set()
        self._suspected: set[tuple[str, str]] = set()
        self._since_s = 0.0

    @property
    def condition(self) -> str:
        """For /v1/self and `carico doctor`."""
        return "; ".join(dict.fromkeys(self._troubles.values())) or self._fine

    @property
    def well(self) -> bool:
        return not self._troubles

    def bad(self, part: str, error: KubeError) -> None:
        if not self._troubles:
            self._since_s = time.monotonic()
        self._troubles[part] = str(error)
        key = "unreachable" if isinstance(error, Unreachable) else str(error)
        if isinstance(error, Refused) and error.status == 403 and (part, key) not in self._suspected:
            self._suspected.add((part, key))  # a server that has just started refuses everybody for a second or two
        elif key not in self._logged:
            self._logged.add(key)
            log.warning("%s: %s", self._name, error)

    def good(self, part: str) -> None:
        if self._troubles.pop(part, None) is not None and not self._troubles:
            self._logged.clear()
            self._suspected.clear()
            log.info("%s: works again after %.0f s", self._name, time.monotonic() - self._since_s)
