"""Who this agent is: a name of its own that survives restarts, so that two agents for one node notice each other."""

import logging
import re
import secrets
from pathlib import Path

from carico_agent.lib.supervise.files import replace_file

log = logging.getLogger(__name__)

_IDENTITY = re.compile(r"[0-9a-f]{16}")


def agent_identity(path: Path) -> str:
    """What the file at `path` says, written there the first time. A folder that cannot be written makes a name for this
    run only: after a crash the next one waits until the last one's Lease has expired."""
    try:
        if _IDENTITY.fullmatch(known := path.read_text().strip()):
            return known
    except (OSError, UnicodeDecodeError):
        pass  # the first start, or damaged: a new one
    made = secrets.token_hex(8)
    try:
        replace_file(path, made.encode() + b"\n", 0o600)
    except OSError as error:
        log.info("this agent's identity cannot be kept: %s", error)
    return made
