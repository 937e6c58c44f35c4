"""The outlook's week of memory, kept across restarts in a file of its own: half a megabyte, written every ten minutes.

Why apart from model.json: that is written every minute. A crash costs ten minutes of a week, not the week.
"""

import logging
from pathlib import Path

from carico_agent.core import CapacityModel, Outlook
from carico_agent.node.state import sealed, set_aside, unsealed

log = logging.getLogger(__name__)

NAME = "outlook.json"
SAVE_ROUNDS = 10
"""Every tenth minute."""


def encode(model: CapacityModel) -> bytes:
    return sealed(model.outlook.state())


def load(path: Path, model: CapacityModel) -> None:
    """Give the model the saved outlook, if it is sound and of the same resources; else the model begins anew."""
    try:
        found = Outlook.from_state(unsealed(path.read_bytes()))
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("%s: %s; beginning anew", path, error)
        return
    except ValueError as error:
        set_aside(path, str(error))
        return
    if found.resources == model.resources:
        model.outlook = found
    else:
        log.info("%s is of other resources; beginning anew", path)
