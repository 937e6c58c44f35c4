"""The histories of all containers of a node, as an agent keeps them: each container's minute comes in on its own turn.

Bounded: at most 660 containers (330 that run and as many that have gone), 5.6 MB; the one that was not seen for longest
goes first. What was not seen for eight days is forgotten. A container is known by its Pod's name and its own; another
`container_id` under the same name is a restart, and what follows is its start.

>>> store = HistoryStore()
>>> for minute in range(3):
...     store.observe(ContainerOwner("shop", "web-1", "app", "id1"), MinuteSample(1.7e9 + 60 * minute, 0.5, 2.0**28))
>>> store.histories["shop", "web-1", "app"].cpu_tail.values.tolist()
[0.5, 0.5, 0.5]
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from carico_agent.recommend.histogram import DAY_S
from carico_agent.recommend.history import BadHistory, ContainerHistory, MinuteSample
from carico_agent.recommend.workload import UNKNOWN, Resources, resources_from

MAX_CONTAINERS = 660
FORGET_EVERY = 1000
"""Samples between two looks for what has expired; the bound on the number is kept at every sample."""
VERSION = 1
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ContainerOwner:
    """Whose minute it is, and what it requests now, where that is known."""

    namespace: str
    pod: str
    container: str
    container_id: str = ""
    kind: str = ""
    """Of the workload: Deployment, StatefulSet, …; empty = to be read off the Pod's name."""
    workload: str = ""
    current: Resources = UNKNOWN

    @property
    def key(self) -> Key:
        return self.namespace, self.pod, self.container


class HistoryStore:
    """All histories; `observe` is the only command."""

    def __init__(self, most: int = MAX_CONTAINERS) -> None:
        self.histories: dict[Key, ContainerHistory] = {}
        self._most = most
        self._owners: dict[Key, ContainerOwner] = {}
        self._begun_s: float | None = None
        self._taken = 0

    def observe(self, owner: ContainerOwner, sample: MinuteSample) -> None:
        """One minute of one container."""
        history = self.histories.pop(owner.key, None)
        known = self._owners.get(owner.key)
        self._begun_s = sample.t_s if self._begun_s is None else self._begun_s
        if history is None:
            history = ContainerHistory()
            if sample.t_s - self._begun_s > 2 * history.cpu_tail.step_s:
                history.started(sample.t_s)  # new since then; in the first minutes everything is new to this store
        elif known is not None and known.container_id and known.container_id != owner.container_id:
            history.started(sample.t_s)
        history.observe(sample, owner.current.request_bytes or 0.0)
        self.histories[owner.key] = history  # to the end: the order is that of last sight
        self._owners[owner.key] = owner
        self._taken += 1
        self._forget(sample.t_s)

    def _forget(self, time_s: float) -> None:
        gone = list(self.histories)[: max(len(self.histories) - self._most, 0)]
        if self._taken % FORGET_EVERY == 0:
            gone += [key for key, history in self.histories.items() if history.expired(time_s)]
        for key in set(gone):
            del self.histories[key]
            self._owners.pop(key, None)

    def answer(self, node: str, cores: float, memory_bytes: float) -> dict[str, Any]:
        """What GET /v1/history/containers returns (read by sources/histories.py)."""
        return {
            "node": node,
            "cores": cores,
            "memory_bytes": memory_bytes,
            "half_life_s": DAY_S,
            "containers": self._rows(),
        }

    def state(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return {"version": VERSION, "containers": self._rows()}

    def _rows(self) -> list[dict[str, Any]]:
        return [{**_named(self._owners[key]), "history": history.state()} for key, history in self.histories.items()]

    @classmethod
    def from_state(cls, state: Mapping[str, Any], most: int = MAX_CONTAINERS) -> "HistoryStore":
        """Continue; BadHistory names the field."""
        made = cls(most)
        if state.get("version") != VERSION:
            raise BadHistory(f"version: {VERSION} is expected, not {state.get('version')!r}")
        rows = state.get("containers")
        if not isinstance(rows, list):
            raise BadHistory("containers: a list is expected")
        for n, row in enumerate(rows[-most:]):
            try:
                texts = {name: str(row.get(name, "")) for name in ("container_id", "kind", "workload")}
                current = resources_from(row.get("current") or {})
                owner = ContainerOwner(
                    str(row["namespace"]), str(row["pod"]), str(row["container"]), **texts, current=current
                )
                made.histories[owner.key] = ContainerHistory.from_state(row["history"])
                made._owners[owner.key] = owner
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise BadHistory(f"containers[{n}]: {error}") from error
        return made


def _named(owner: ContainerOwner) -> dict[str, Any]:
    """What is not known is left out."""
    texts = {name: getattr(owner, name) for name in ("container_id", "kind", "workload") if getattr(owner, name)}
    current = {name: value for name, value in asdict(owner.current).items() if value not in (None, "")}
    return {
        "namespace": owner.namespace,
        "pod": owner.pod,
        "container": owner.container,
        **texts,
        **({"current": current} if current else {}),
    }
