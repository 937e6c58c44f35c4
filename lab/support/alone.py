"""A measurement that comes first on its machine, where its user asks for that (`--first`).

What runs in its cgroup competes among itself as ever; what runs outside gets some 4 % of the CPUs while it wants them.
So this is for a machine whose other users have agreed, and never the default.
"""

import os
from pathlib import Path

from carico_agent.node.pods.cgroups import layout

MAX_SHARES, MAX_WEIGHT = 262_144, 10_000


def prefer(group: str) -> None:
    """Give this top-level group and this process (not its children) precedence; the group may not be there yet."""
    found = layout(Path("/"))
    mount = found.controllers.get("cpu") or found.unified
    for name, value in (("cpu.shares", MAX_SHARES), ("cpu.weight", MAX_WEIGHT)):
        file = Path(f"/{mount}/{group}/{name}")
        if file.exists():
            file.write_text(str(value))
    os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(5))
