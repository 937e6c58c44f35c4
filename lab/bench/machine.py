"""The machine on which a benchmark runs, and who else uses it."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def conditions() -> str:
    """Date, CPUs, kernel, Python and how busy the machine is, in one sentence."""
    cpu = next(
        (
            line.partition(": ")[2]
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} CPUs ({cpu}), Linux {platform.release()}, "
        f"Python {platform.python_version()}, load average before: {load}."
    )


def stolen_ticks() -> tuple[int, int]:
    """CPU time that the hypervisor gave to others, and all time, since boot: a virtual machine is never quite alone."""
    ticks = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)
