"""What a Job reads, and where it lies: `carico.dev/data`, resolved.

`model=NAME@VERSION` is looked up in the registry (`registry.py`), `NAME=latest` by a command of the operator's choice,
for stores of other forms. The document keeps a record {name, time, place} per trained model and takes the newest (4.6).
Answers are believed for a minute by the planner. A Job that moves is resolved anew (`now`).
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from carico_agent.burst.choice import DATA, Data, parse_data
from carico_agent.burst.objects import HomeJob
from carico_agent.burst.registry import Registry
from carico_agent.lib.kube.placement_lease import MALFORMED

BELIEVED_S = 60.0
DEADLINE_S = 10.0


RegistryOf = Callable[[str], Registry]
"""The registry of a namespace; raises ValueError where none is configured."""


def no_registry(namespace: str) -> Registry:
    raise ValueError(f"namespace {namespace} has no models: burst.registry names no registry")


class Models:
    """Resolves the data of Jobs. Answers are kept for BELIEVED_S, failures as well.

    `data_region`: where the registry's bucket is, as in the prices.
    """

    def __init__(self, command: tuple[str, ...], registry: RegistryOf = no_registry, data_region: str = "") -> None:
        self._command, self._registry, self._region = command, registry, data_region
        self._known: dict[tuple[str, str, str], tuple[float, Data | str]] = {}

    def of(self, job: HomeJob) -> tuple[Data, ...]:
        """As it was resolved last. Raises ValueError with the reason why it is not known where the data lies."""
        return tuple(self._resolved(job, one) for one in _data_of(job))

    def now(self, job: HomeJob) -> tuple[Data, ...]:
        """Resolved anew, for a Job that moves. Blocks; raises ValueError."""
        for one in _unresolved(job):
            self._learn(job, one)
        return self.of(job)

    def prepare(self, jobs: Iterable[HomeJob]) -> None:
        """Ask for everything that these Jobs name and that was not asked for lately. Blocks."""
        for job in jobs:
            with suppress(ValueError):
                for one in _unresolved(job) if not job.finished else ():
                    if time.monotonic() >= self._known.get(_key(job, one), (0.0, ""))[0]:
                        self._learn(job, one)

    def _learn(self, job: HomeJob, one: Data) -> None:
        if len(self._known) > 1000:
            self._known.clear()
        found = self._find(job.namespace, one) if one.model else self._ask(one.name)
        self._known[_key(job, one)] = time.monotonic() + BELIEVED_S, found

    def _resolved(self, job: HomeJob, one: Data) -> Data:
        if not (one.model or one.url == "latest"):
            return one
        _, found = self._known.get(_key(job, one), (0.0, "not asked yet"))
        if isinstance(found, str):
            raise ValueError(f"{DATA}: {one.name}{'@' + one.version if one.model else '=latest'}: {found}")
        return found

    def _find(self, namespace: str, one: Data) -> Data | str:
        try:
            record = self._registry(namespace).find(one.name, one.version)
        except (OSError, LookupError, ValueError) as error:
            return str(error)
        return Data(one.name, record.url, self._region, record.size_bytes / 1e9, record.version)

    def _ask(self, name: str) -> Data | str:
        if not self._command:
            return "burst.models has no command"
        try:
            done = subprocess.run([*self._command, name], capture_output=True, timeout=DEADLINE_S, check=True)
            value = json.loads(done.stdout)
            return Data(name, str(value["url"]), str(value.get("region") or ""), float(value.get("gb") or 1.0))
        except (OSError, subprocess.SubprocessError) as error:
            return f"{self._command[0]}: {error}"
        except MALFORMED:
            return f"{self._command[0]} printed no JSON with a url"


def _data_of(job: HomeJob) -> tuple[Data, ...]:
    return parse_data((job.whole["metadata"].get("annotations") or {}).get(DATA, ""))


def _unresolved(job: HomeJob) -> list[Data]:
    return [one for one in _data_of(job) if one.model or one.url == "latest"]


def _key(job: HomeJob, one: Data) -> tuple[str, str, str]:
    return job.namespace if one.model else "", one.name, one.version
