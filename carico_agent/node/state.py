"""What was learned, kept across restarts: one JSON file, checksummed, replaced atomically.

A damaged or foreign file is set aside with one log line; the agent then begins anew.
"""

import asyncio
import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.lib.supervise.files import replace_file
from carico_agent.lib.supervise.workers import Workers, WorkersBusy

log = logging.getLogger(__name__)

VERSION = 1
SAVE_EVERY_S = 60.0
SAVE_WITHIN_S = 5.0
"""How long the end of the agent waits for the disk [s]."""


TUNING = frozenset({"limits", "service_limits", "forget", "settle_s", "halt_max_s"})
"""Settings of the model under which what was learned stays true. A newer version may have other defaults."""


def encode(model: CapacityModel) -> bytes:
    return sealed(model.state())


def sealed(state: Mapping[str, Any]) -> bytes:
    """A state with its checksum."""
    body = json.dumps(state, sort_keys=True, allow_nan=False)
    return json.dumps({"carico_state": VERSION, "sha256": _digest(body), "model": body}).encode()


def decode(encoded: bytes) -> CapacityModel:
    """The model, or ValueError saying what is wrong."""
    return CapacityModel.from_state(unsealed(encoded))


def unsealed(encoded: bytes) -> Any:
    """The state in it, or ValueError saying what is wrong."""
    try:
        outer = json.loads(encoded)
        if outer["carico_state"] != VERSION:
            raise ValueError(f"version {outer['carico_state']!r}, this carico reads {VERSION}")
        if _digest(outer["model"]) != outer["sha256"]:
            raise ValueError("the checksum is wrong")
        return json.loads(outer["model"])
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a carico state: {error!r}") from error


def load(path: Path, resources: tuple[str, ...], config: ModelConfig) -> CapacityModel | None:
    """The saved model with a new clock, if it is sound and was made with the same settings on the same resources.

    The most Pods that the node may run may differ (that caps the number, and shapes nothing that was learned), and so
    may `TUNING`.
    """
    try:
        model = decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("%s: %s; beginning anew", path, error)
        return None
    except ValueError as error:
        set_aside(path, str(error))
        return None
    model.limit_pods(config.max_pods)
    if model.resources != resources or _learned_with(model.config) != _learned_with(config):
        log.info("%s was made with other settings or resources; beginning anew", path)
        return None
    if model.config != config:  # other limits or another pace: what was learned stays true
        model = CapacityModel.from_state(model.state() | {"config": config.state()})
    model.restart_clock()
    return model


@dataclass(frozen=True, slots=True)
class Kept:
    """One file: `encoded()` is what to write, every so many rounds of SAVE_EVERY_S."""

    path: Path
    encoded: Callable[[], bytes]
    rounds: int = 1


def _learned_with(config: ModelConfig) -> dict[str, Any]:
    """What decides what is learned: not where a resource counts as full, nor how fast old samples fade."""
    return {key: value for key, value in config.state().items() if key not in TUNING}


class StateFiles:
    """Keeps what was learned: a crash costs at most a minute of it, a state that cannot be saved a log line."""

    def __init__(self, files: Sequence[Kept], disk: Workers) -> None:
        self._files, self._disk = files, disk
        self._trouble = ""

    async def run(self) -> None:
        for number in itertools.count(1):
            await asyncio.sleep(SAVE_EVERY_S)
            await self.save([file for file in self._files if number % file.rounds == 0])

    async def save(self, files: Sequence[Kept]) -> None:
        trouble = ""
        for file in files:
            try:
                await self._disk.run(replace_file, file.path, file.encoded(), 0o600, synced=True)
            except (OSError, WorkersBusy) as error:
                trouble = str(error)
        if trouble and trouble != self._trouble:
            log.warning("what was learned cannot be saved: %s", trouble)
        self._trouble = trouble

    async def save_last(self) -> None:
        """At the end, for as long as anybody would wait."""
        try:
            async with asyncio.timeout(SAVE_WITHIN_S):
                await self.save(self._files)
        except TimeoutError:
            log.warning("the last minute of learning was not saved: the disk does not answer")


def set_aside(path: Path, why: str) -> None:
    """Keep a file that makes no sense for those who want to know, out of our way."""
    aside = path.with_suffix(".damaged")
    try:
        path.replace(aside)
        log.warning("%s: %s; set aside as %s", path, why, aside)
    except OSError as error:
        log.warning("%s: %s; and it cannot be set aside: %s", path, why, error)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
