"""What `carico plane` and `carico burst` say, fetched for the cluster's page while a browser shows it.

Each fails alone and in words: a service that does not answer is a sentence in its panel and not an error of the page.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

TIMEOUT = aiohttp.ClientTimeout(total=2.0)
MAX_BYTES = 4 * 2**20
MAX_ROWS = 50

Body = dict[str, Any]


class ClusterServices:
    """The services at these base addresses; empty ones are left out."""

    def __init__(self, plane: str, burst: str) -> None:
        self._asked: dict[str, tuple[str, Callable[[Mapping[str, Any]], Body]]] = {}
        if plane:
            self._asked["plane"] = f"{plane.rstrip('/')}/v1/plane", plane_panel
        if burst:
            self._asked["burst"] = f"{burst.rstrip('/')}/v1/burst", burst_panel
        self._session: aiohttp.ClientSession | None = None

    async def panels(self) -> Body:
        """Name of the service → its panel."""
        if self._asked and self._session is None:
            self._session = aiohttp.ClientSession(timeout=TIMEOUT)
        found = await asyncio.gather(*(self._panel(*asked) for asked in self._asked.values()))
        return dict(zip(self._asked, found, strict=True))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _panel(self, url: str, read: Callable[[Mapping[str, Any]], Body]) -> Body:
        assert self._session is not None
        try:
            async with self._session.get(url) as given:
                body = json.loads(await given.content.read(MAX_BYTES))
                if given.status != 200:
                    return {"error": str(body["error"])}
                return read(body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return {"error": f"{url} does not answer: {error or type(error).__name__}"}
        except (ValueError, KeyError, TypeError, AttributeError):
            return {"error": f"{url} answers something else than expected"}


def plane_panel(body: Mapping[str, Any]) -> Body:
    """Of /v1/plane: the remedy in words, and a row per component."""
    seen = body["diagnosis"]
    if seen is None:
        return {"text": "Nothing has been measured yet.", "components": []}
    names = ("name", "arrivals_per_s", "utilisation", "waiting", "throttled_ratio")
    rows = [{name: row[name] for name in names} for row in seen["components"][:MAX_ROWS]]
    return {"text": str(seen["remedy"]), "components": rows}


def burst_panel(body: Mapping[str, Any]) -> Body:
    """Of /v1/burst: how many Jobs are where, and how each target is doing.

    >>> job = {"state": "Running", "to": "east"}
    >>> burst_panel({"jobs": [job, job], "targets": {"east": {"condition": "fine"}}, "moved": 2, "finished": 0})
    {'text': '2 Jobs of which 2 are elsewhere; 2 moved and 0 finished so far.', 'targets': [['east', 'fine', 2]]}
    """
    there = Counter(str(job["to"]) for job in body["jobs"] if job["to"] and str(job["state"]).lower() != "home")
    text = (
        f"{len(body['jobs'])} Jobs of which {there.total()} are elsewhere; "
        f"{body['moved']} moved and {body['finished']} finished so far."
    )
    targets = list(body["targets"].items())[:MAX_ROWS]
    return {"text": text, "targets": [[name, str(one["condition"]), there[name]] for name, one in targets]}
