"""SIGHUP: a new configuration, as far as it can be taken over while running.

What shapes the model or opens a file or socket needs a restart (which is cheap: what was learned is kept); it is named
in the log, never silently ignored.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from carico_agent.lib.supervise.workers import Workers, WorkersBusy
from carico_agent.settings import BadSettings, Settings

log = logging.getLogger(__name__)

LOAD_WITHIN_S = 5.0

LIVE = {
    "sampling": {"period_s"},
    "socket": {"ttl_s", "status_file"},
    "clients": {"connections", "requests_per_s", "reserved_pods", "reserved_ratio"},
    "budget": {"cpu_ratio", "resident_mb", "pressure_ratio", "calm_s"},
    "federation": {"weight"},
    "pods": {"usage_period_s"},
    "progress": {"reports_per_s", "pod_reports_per_s", "pod_connections"},
    "reservations": {"most", "max_ttl_s"},
}
"""Section → settings that take effect at once."""
OTHERS = {"aggregator", "extender", "cluster_page", "plane", "burst"}
"""Sections of processes other than this one."""


def take_over(old: Settings, new: Settings) -> tuple[Settings, list[str], list[str]]:
    """The settings from now on; what was taken over; what waits for a restart."""
    effective, taken, waiting = old, [], []
    for section in fields(Settings):
        if section.name in OTHERS:
            continue
        was, wanted = getattr(old, section.name), getattr(new, section.name)
        changed: dict[str, Any] = {}
        for one in fields(was):
            before, after = getattr(was, one.name), getattr(wanted, one.name)
            if before == after:
                continue
            if one.name in LIVE.get(section.name, ()):
                changed[one.name] = after
                taken.append(f"{section.name}.{one.name}: {before} → {after}")
            else:
                waiting.append(f"{section.name}.{one.name}")
        effective = replace(effective, **{section.name: replace(was, **changed)})
    return effective, taken, waiting


class Configuration:
    """The settings in force; a part that must act on a change registers with `on_change`."""

    def __init__(self, settings: Settings, load: Callable[[], Settings] | None, disk: Workers) -> None:
        """`load` reads them again, in a thread of `disk`; None: there is no file."""
        self._settings, self._load, self._disk = settings, load, disk
        self._listeners: list[Callable[[Settings], None]] = []
        self._reloading: asyncio.Task[None] | None = None

    def current(self) -> Settings:
        return self._settings

    def on_change(self, listener: Callable[[Settings], None]) -> None:
        self._listeners.append(listener)

    async def reload(self) -> tuple[list[str], list[str]]:
        """Read the configuration again: what was taken over, what waits for a restart.

        BadSettings, WorkersBusy and TimeoutError (a disk that does not answer) change nothing.
        """
        if self._load is None:
            return [], []
        async with asyncio.timeout(LOAD_WITHIN_S):
            new = await self._disk.run(self._load)
        return self.take_over(new)

    def take_over(self, new: Settings) -> tuple[list[str], list[str]]:
        self._settings, taken, waiting = take_over(self._settings, new)
        for listener in self._listeners:
            listener(self._settings)
        log.info(
            "configuration read again: %s%s",
            ", ".join(taken) or "nothing to take over",
            f"; waiting for a restart: {', '.join(waiting)}" if waiting else "",
        )
        return taken, waiting

    def reload_soon(self) -> None:
        """For SIGHUP, which has no answer."""
        self._reloading = asyncio.create_task(self._reload_or_log())

    async def _reload_or_log(self) -> None:
        try:
            await self.reload()
        except BadSettings as bad:
            log.error("the new configuration was not read; the old one stays in force: %s", "; ".join(bad.errors))
        except (WorkersBusy, TimeoutError):
            log.error("the new configuration was not read; the old one stays in force: the disk does not answer")
