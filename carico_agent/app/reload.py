"""SIGHUP: a new configuration, as far as it can be taken over while running.

What shapes the model or opens a file or socket needs a restart (which is cheap: what was learned is kept); it is named
in the log, never silently ignored.
"""

from dataclasses import fields, replace
from typing import Any

from carico_agent.settings import Settings

LIVE = {
    "sampling": {"period_s"},
    "socket": {"ttl_s", "status_file"},
    "clients": {"connections", "requests_per_s", "reservations"},
    "budget": {"cpu_ratio", "resident_mb", "pressure_ratio", "calm_s"},
    "federation": {"weight"},
    "pods": {"usage_period_s"},
    "reservations": {"most", "most_ttl_s"},
}
"""Section → settings that take effect at once."""
OTHERS = {"aggregator", "extender"}
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
