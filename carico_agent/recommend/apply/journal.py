"""One line per change, on disk before the change is made: what stood there, what we wrote, and how it ended.

Folding the lines gives the open changes: Pods that hold resources of ours, with those to put back.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class OpenChange:
    """A Pod that we have resized. `original` is from before our first change of it, `ours` our last."""

    namespace: str
    name: str
    uid: str
    owner: str
    original: dict[str, Any]
    ours: dict[str, Any]
    time_s: float = 0.0
    restarts: dict[str, int] = field(default_factory=dict)
    throttled_ratio: float = 0.0
    oom_kills: int = 0
    """Of its workload before the change."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class BadJournal(Exception):
    """A line that cannot be read; names it."""


class ResizeJournal:
    """An append-only file of JSON lines. `clock`: seconds since 1970."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock
        self.open: dict[str, OpenChange] = {}
        """By UID."""
        if path.exists():
            self._fold(path.read_text())

    def changing(self, change: OpenChange, why: str) -> OpenChange | None:
        """Before the API server is asked. Returns an earlier change of the same Pod."""
        change.time_s = self._clock()
        known = self.open.get(change.uid)
        if known is not None:
            change.original = merged(change.original, known.original)
        self.open[change.uid] = change
        self._write({"event": "change", "why": why, **asdict(change)})
        return known

    def refused(self, uid: str, earlier: OpenChange | None, why: str) -> None:
        """The last change was not made; an earlier one still stands there."""
        self.closed(uid, "refused", why)
        if earlier is not None:
            self.open[uid] = earlier
            self._write({"event": "change", "why": "stands since before", **asdict(earlier)})

    def closed(self, uid: str, event: str, why: str) -> None:
        """`event`: restored, rolled-back, refused, gone, taken-over."""
        change = self.open.pop(uid)
        self._write({"event": event, "why": why, "uid": uid, "pod": change.key})

    def _write(self, record: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"t_s": round(self._clock(), 3), **record}, separators=(",", ":"))
        with self.path.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _fold(self, text: str) -> None:
        whole, torn = text[: text.rfind("\n") + 1], text[text.rfind("\n") + 1 :]
        for n, line in enumerate(whole.splitlines(), 1):
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise BadJournal(f"{self.path}: line {n} cannot be read: {error!r}") from error
        if torn:  # the change that it would have announced was not made; the next line must begin a new one
            os.truncate(self.path, len(whole.encode()))

    def _take(self, record: dict[str, Any]) -> None:
        if record["event"] == "change":
            known = {name: record[name] for name in OpenChange.__dataclass_fields__}
            self.open[record["uid"]] = OpenChange(**known)
        else:
            self.open.pop(record["uid"], None)


def merged(newer: dict[str, Any], older: dict[str, Any]) -> dict[str, Any]:
    """What to put back after several changes: the oldest value of every field.

    >>> merged({"app": {"requests": {"cpu": "1", "memory": "1Gi"}}}, {"app": {"requests": {"cpu": "2"}}})
    {'app': {'requests': {'cpu': '2', 'memory': '1Gi'}}}
    """
    made = {name: {what: dict(amounts) for what, amounts in one.items()} for name, one in newer.items()}
    for name, one in older.items():
        for what, amounts in one.items():
            made.setdefault(name, {}).setdefault(what, {}).update(amounts)
    return made
