"""What an extender notices of a setup that promises less than it seems to. It cannot read kube-scheduler's
configuration, but it sees what kube-scheduler does.

- A Pod is bound to a node for which our bind had refused it. That is `ignorable: true` without the admission webhook:
  since 1.30 kube-scheduler ignores also a refusal, and binds by itself.
- Filter is asked about Pods that do not ask for the extended resource. kube-scheduler counts nothing for them, so every
  change of a Node makes it ask about all that wait.

Each is logged when it begins and when it has not been seen for a while, stands in `/healthz`, and is counted.
"""

import logging
import time
from collections.abc import Callable
from math import inf

log = logging.getLogger(__name__)

IGNORABLE = (
    "kube-scheduler bound a Pod that this extender had refused ({}): with `ignorable: true` it ignores refusals, and "
    "nodes get more than they offer. Set `ignorable: false`, or apply deploy/admission/bindings.yaml"
)
WITHOUT_RESOURCE = (
    "kube-scheduler asks about Pods that do not ask for {}: it counts no places for them, and asks about all of them "
    "again at every change of a Node. Let them ask for it (deploy/admission/add-place.yaml)"
)

OVER_S = 600.0
"""What was not seen for this long is over [s]."""
MAX_REFUSED = 10_000


class SetupWarning:
    """One of them: in force since it was last seen, for OVER_S."""

    def __init__(self, over: str) -> None:
        self._over, self._text, self._seen_s = over, "", -inf
        self.count = 0

    def seen(self, text: str, now_s: float) -> None:
        self.count += 1
        self._seen_s = now_s
        if not self._text:
            self._text = text
            log.warning("%s", text)

    def text(self, now_s: float) -> str:
        """Empty: it is not in force."""
        if self._text and now_s - self._seen_s > OVER_S:
            self._text = ""
            log.info("%s", self._over)
        return self._text


class SetupWarnings:
    """`judges`: whether this extender knows of every place that was given, so that it may say who was refused."""

    def __init__(self, resource: str, refused_s: float, judges: Callable[[], bool] = lambda: True) -> None:
        self._resource, self._refused_s, self._judges = resource, refused_s, judges
        self._refused: dict[tuple[str, str], float] = {}  # UID and node → when, the oldest first
        self.overruled = SetupWarning("kube-scheduler has not bound a refused Pod for a while")
        self.without_resource = SetupWarning("kube-scheduler asks about Pods with the resource only")

    def texts(self) -> list[str]:
        now_s = time.monotonic()
        return [text for one in (self.overruled, self.without_resource) if (text := one.text(now_s))]

    # ---- bindings

    def refused(self, uid: str, node: str) -> None:
        """Our bind has refused this Pod."""
        self._refused.pop((uid, node), None)
        self._refused[uid, node] = time.monotonic()
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    def placed(self, uid: str, node: str) -> None:
        """There was a place after all."""
        self._refused.pop((uid, node), None)

    def refused_lately(self, uid: str, node: str) -> bool:
        return time.monotonic() - self._refused.get((uid, node), -inf) < self._refused_s

    def bound(self, uid: str, node: str, name: str) -> None:
        """The watch shows this Pod on a node."""
        if self._refused and self.refused_lately(uid, node) and self._judges():
            self.overruled.seen(IGNORABLE.format(f"{name} on {node}"), time.monotonic())
            del self._refused[uid, node]

    # ---- filter

    def asked(self, uid: str, holds: int) -> None:
        """kube-scheduler asks about this Pod, which asks for so much of the resource."""
        if uid and not holds and self._resource:
            self.without_resource.seen(WITHOUT_RESOURCE.format(self._resource), time.monotonic())
