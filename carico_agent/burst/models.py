"""What a Job reads, and where it lies: `carico.dev/data`, with `NAME=latest` resolved by a command.

The thesis keeps a record {name, time, place} per trained model and takes the newest (4.6). Any object store has a way
to list what is newest; a command of the operator's choice asks it, and its answer is believed for a minute.
"""

import json
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress

from carico_agent.burst.choice import DATA, Data, parse_data
from carico_agent.burst.objects import HomeJob
from carico_agent.lib.kube.placement_lease import MALFORMED

BELIEVED_S = 60.0
DEADLINE_S = 10.0


class Models:
    """Resolves the data of Jobs. Answers of the command are kept for BELIEVED_S, failures as well."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
        self._known: dict[str, tuple[float, Data | str]] = {}

    def of(self, job: HomeJob) -> tuple[Data, ...]:
        """Raises ValueError with the reason why it is not known where the data lies."""
        text = (job.whole["metadata"].get("annotations") or {}).get(DATA, "")
        return tuple(self.newest(one.name) if one.url == "latest" else one for one in parse_data(text))

    def prepare(self, jobs: Iterable[HomeJob]) -> None:
        """Ask for every model that these Jobs name and that was not asked for lately. Blocks."""
        for job in jobs:
            text = (job.whole["metadata"].get("annotations") or {}).get(DATA, "")
            if "=latest" not in text or job.finished:
                continue
            with suppress(ValueError):
                for one in parse_data(text):
                    if one.url == "latest" and time.monotonic() >= self._known.get(one.name, (0.0, ""))[0]:
                        self._learn(one.name)

    def _learn(self, name: str) -> None:
        if len(self._known) > 1000:
            self._known.clear()
        self._known[name] = time.monotonic() + BELIEVED_S, self._ask(name)

    def newest(self, name: str) -> Data:
        _, found = self._known.get(name, (0.0, "not asked yet"))
        if isinstance(found, str):
            raise ValueError(f"{DATA}: {name}=latest: {found}")
        return found

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
