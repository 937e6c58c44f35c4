"""What was learned, kept across restarts: one JSON file, checksummed, replaced atomically.

A damaged or foreign file is set aside with one log line; the agent then begins anew.
"""

import hashlib
import json
import logging
from pathlib import Path

from carico_agent.core import CapacityModel, ModelConfig

log = logging.getLogger(__name__)

VERSION = 1


def encode(model: CapacityModel) -> bytes:
    body = json.dumps(model.state(), sort_keys=True, allow_nan=False)
    return json.dumps({"carico_state": VERSION, "sha256": _digest(body), "model": body}).encode()


def decode(encoded: bytes) -> CapacityModel:
    """The model, or ValueError saying what is wrong."""
    try:
        outer = json.loads(encoded)
        if outer["carico_state"] != VERSION:
            raise ValueError(f"version {outer['carico_state']!r}, this carico reads {VERSION}")
        if _digest(outer["model"]) != outer["sha256"]:
            raise ValueError("the checksum is wrong")
        return CapacityModel.from_state(json.loads(outer["model"]))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a carico state: {error!r}") from error


def load(path: Path, resources: tuple[str, ...], config: ModelConfig) -> CapacityModel | None:
    """The saved model with a new clock, if it is sound and was made with the same settings on the same resources."""
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
    if model.resources != resources or model.config.state() != config.state():
        log.info("%s was made with other settings or resources; beginning anew", path)
        return None
    model.restart_clock()
    return model


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
