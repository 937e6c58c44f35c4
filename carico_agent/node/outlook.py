"""The outlook's week of memory, kept across restarts in a file of its own: half a megabyte, written every ten minutes.

Why apart from model.json: that is written every minute. A crash costs ten minutes of a week, not the week.
"""

import logging
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from aiohttp import web

from carico_agent.core import CapacityModel, Outlook
from carico_agent.core.outlook import Band
from carico_agent.lib.net.http import Handler, answer
from carico_agent.node.publish.status import known
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


class OutlookRoutes:
    """The last and the next 24 h of the Pods that run now, for the page."""

    def __init__(self, model: Callable[[], CapacityModel]) -> None:
        self._model = model

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {"/v1/outlook": {"GET": self._show}}

    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """what the Pods that run now used and will use together: the last and the next 24 hours, per half hour"""
        return answer(self.body())

    def body(self) -> dict[str, Any]:
        model = self._model()
        outlook = model.outlook
        host = model.estimate(workloads=False).host or (0.0,) * len(model.resources)
        return {
            "outlook": outlook.mode,
            "known_s": outlook.known_s,
            "limits": {name: model.config.limit(name) for name in model.resources},
            "past": self._columns(outlook.past(), model.resources, host),
            "next": self._columns(outlook.band(), model.resources, host),
        }

    def _columns(self, bands: list[Band], resources: Sequence[str], host: Sequence[float]) -> dict[str, Any]:
        """Per resource the use of the node, the host as it is now; null where unknown."""
        found: dict[str, Any] = {"time_s": [band.t for band in bands]}
        for i, name in enumerate(resources):
            beside = host[i] if isfinite(host[i]) else 0.0
            sides = ("low", "middle", "high")
            found[name] = {side: [known(getattr(band, side)[i] + beside, 4) for band in bands] for side in sides}
        return found
