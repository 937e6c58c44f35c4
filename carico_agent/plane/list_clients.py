"""Which clients list, and how: from an audit log, read as a stream in bounded memory. Pure.

The purpose of *MerKury*'s request wrapper, today: a LIST without `limit` makes the API server go through the whole
collection, and one that the watch cache cannot answer makes etcd read it. Which those are depends on the version:

- resourceVersion=0: the watch cache, always; `limit` is ignored there;
- no resourceVersion: etcd before 1.31, the watch cache since (consistent reads);
- resourceVersionMatch=Exact, and `continue`: etcd before 1.34, since then a snapshot of the watch cache if it has one.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from carico_agent.lib.net.times import parse_rfc3339

MAX_CLIENTS = 4096
MIN_LISTS = 3
"""An informer lists once and watches from then on; its restart is a second time."""
MIN_SHARE = 0.05
"""Of the time of all LISTs; clients below this are not worth a word."""
CONSISTENT_FROM_CACHE, SNAPSHOTS = 31, 34
"""Minor versions: no resourceVersion, and an exact one, are answered by the watch cache."""

Source = Literal["cache", "etcd"]


@dataclass(frozen=True, slots=True)
class ListRequest:
    """One LIST as its client asked for it."""

    limit: int = 0
    resource_version: str = ""
    exact: bool = False
    """resourceVersionMatch=Exact, or a `continue` token."""
    single: bool = False
    """A field selector with metadata.name: the server reads one object."""

    @property
    def whole(self) -> bool:
        """Whether the whole collection is in the answer: no limit, or one that is ignored."""
        return not self.single and (self.limit == 0 or self.resource_version == "0")

    def source(self, minor: int) -> Source:
        """Where 1.`minor` reads it."""
        if self.exact:
            return "cache" if minor >= SNAPSHOTS else "etcd"
        if self.resource_version:
            return "cache"
        return "cache" if minor >= CONSISTENT_FROM_CACHE else "etcd"


def parse_uri(uri: str) -> ListRequest:
    """
    >>> parse_uri("/api/v1/configmaps?limit=500&resourceVersion=0")
    ListRequest(limit=500, resource_version='0', exact=False, single=False)
    """
    query = {key: values[-1] for key, values in parse_qs(urlsplit(uri).query).items()}
    limit = query.get("limit", "")
    return ListRequest(
        int(limit) if limit.isdecimal() else 0,
        query.get("resourceVersion", ""),
        "continue" in query or query.get("resourceVersionMatch") == "Exact",
        "metadata.name=" in query.get("fieldSelector", ""),
    )


@dataclass(frozen=True, slots=True)
class ListClient:
    """A client, and what it lists."""

    user: str
    agent: str
    """The first word of its User-Agent: program and version."""
    group: str
    resource: str
    masters: bool = False
    """Of system:masters: no priority level limits it."""


@dataclass(slots=True)
class Lists:
    """What one client's LISTs were like."""

    count: int = 0
    seconds: float = 0.0
    whole: int = 0
    """With the whole collection in the answer."""
    etcd: int = 0
    """That etcd had to read."""
    ignored_limits: int = 0
    """With a limit and resourceVersion=0."""
    exact: int = 0
    """Of an old version, or a further page: from etcd where the watch cache has no snapshot of it."""

    def add(self, request: ListRequest, seconds: float, minor: int) -> None:
        self.count += 1
        self.seconds += seconds
        self.whole += request.whole
        self.etcd += request.source(minor) == "etcd"
        self.ignored_limits += request.limit > 0 and request.resource_version == "0"
        self.exact += request.exact

    def faults(self) -> list[str]:
        """In words; empty: it lists as it should."""
        found = []
        if self.etcd:
            found.append(f"{self.etcd} read from etcd")
        if self.ignored_limits:
            found.append(f"{self.ignored_limits} with a limit that resourceVersion=0 switches off")
        if (plain := self.whole - self.ignored_limits) > 0:
            found.append(f"{plain} without a limit")
        if self.exact and self.whole and not self.etcd:
            found.append(f"{self.exact} of an old version: from etcd when the watch cache has no snapshot of it")
        return found


@dataclass(slots=True)
class ListReport:
    """All LISTs of a log."""

    clients: dict[ListClient, Lists] = field(default_factory=dict)
    left_out: int = 0
    """LISTs of clients beyond MAX_CLIENTS."""

    def worst(self) -> list[tuple[ListClient, Lists]]:
        """Clients that list repeatedly and either read from etcd or take whole collections; the costliest first."""
        whole_s = sum(one.seconds for one in self.clients.values())
        bad = [
            (client, one)
            for client, one in self.clients.items()
            if one.count >= MIN_LISTS and one.faults() and one.seconds >= MIN_SHARE * whole_s
        ]
        return sorted(bad, key=lambda pair: pair[1].seconds, reverse=True)


def read_lists(lines: Iterable[str], minor: int) -> ListReport:
    """Finished LISTs per client; what is no audit event is skipped. `minor`: of the server's version, 36 of 1.36."""
    report = ListReport()
    for line in lines:
        found = _list_event(line)
        if found is None:
            continue
        client, request, took_s = found
        if client not in report.clients and len(report.clients) >= MAX_CLIENTS:
            report.left_out += 1
            continue
        report.clients.setdefault(client, Lists()).add(request, took_s, minor)
    return report


def _list_event(line: str) -> tuple[ListClient, ListRequest, float] | None:
    if '"list"' not in line:
        return None
    try:
        event: Any = json.loads(line)
        if event["stage"] != "ResponseComplete" or event["verb"] != "list":
            return None
        what, user = event["objectRef"], event["user"]
        begun_s, ended_s = (parse_rfc3339(event[key]) for key in ("requestReceivedTimestamp", "stageTimestamp"))
        agent = str(event.get("userAgent") or "").partition(" ")[0]
        masters = "system:masters" in (user.get("groups") or ())
        client = ListClient(
            str(user["username"]), agent, str(what.get("apiGroup") or ""), str(what["resource"]), masters
        )
        return client, parse_uri(str(event["requestURI"])), max(0.0, ended_s - begun_s)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
