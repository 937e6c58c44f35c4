"""Public traces as nodes: what each VM or task uses every five minutes, and what it may use at most.

The data is not in the tree: `--data FOLDER` names where it lies, and a set that is not there is skipped with a reason.
`synthetic` is made by code: services with a day, batch jobs at night, a weekly backup, and Pods that come and go.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DAY_SLOTS = 288
JULY_2013_T, AUGUST_2013_T = 1372636800.0, 1375315200.0


class Missing(Exception):
    """This set is not in the folder; says which file would bring it."""


@dataclass(frozen=True)
class TraceSet:
    """`usage` and `limit` in the set's own unit: VMs or tasks × slots (NaN: does not run), and per VM or task."""

    name: str
    usage: NDArray[np.float32]
    limit: Array
    start_t: float
    """Of the first slot [unix s]."""

    def half(self, which: int) -> "TraceSet":
        """Every other VM or task: 0 is what weights were fitted on, 1 what they were not."""
        return TraceSet(
            f"{self.name}, {'other' if which else 'fitted'} half",
            self.usage[which::2],
            self.limit[which::2],
            self.start_t,
        )

    def nodes(self, size: int, seed: int | None) -> Iterator[Array]:
        """Rows of each node: neighbours in the set's order without a seed, drawn at random with one."""
        rows = np.arange(len(self.limit)) if seed is None else np.random.default_rng(seed).permutation(len(self.limit))
        for first in range(0, len(rows) - size + 1, size):
            yield rows[first : first + size]


def _load(folder: Path, name: str) -> dict[str, NDArray[np.generic]]:
    path = folder / name
    if not path.exists():
        raise Missing(f"{path} is not there")
    with np.load(path) as file:
        return {key: file[key] for key in file.files}


def bitbrains(folder: Path, month: str, resource: str = "cpu") -> TraceSet:
    """GWA-T-12 Bitbrains Rnd (Shen, van Beek, Iosup, CCGrid 2015): 500 VMs of business workloads."""
    found = _load(folder, f"bitbrains-rnd-2013-{month}.npz")
    limit = np.asarray(found["cores" if resource == "cpu" else "memory_kb"], float)
    usage = np.asarray(found[resource], np.float32) * limit[:, None].astype(np.float32)
    start_t = np.datetime64(f"2013-{month}-01T00:00:00").astype("datetime64[s]").astype(float)
    name = f"Bitbrains Rnd 2013-{month}" + ("" if resource == "cpu" else f" {resource}")
    return TraceSet(name, usage, limit, float(start_t))


def google(folder: Path, per: str) -> TraceSet:
    """Google cluster data 2011: 300 jobs. `task` is the mean task of each job, `job` the whole job scaled to its peak.

    The trace's requests are not in the shared copy: the limit of a task is the most it uses in the month.
    """
    found = _load(folder, "google-2011-jobs.npz")
    tasks, cpu = np.asarray(found["tasks"], np.float32), np.asarray(found["cpu"], np.float32)
    usage = np.where(tasks > 0, cpu / np.maximum(tasks, 1) if per == "task" else cpu, np.nan)
    if per == "job":
        usage = usage / np.nanmax(usage, axis=1, keepdims=True)
    return TraceSet(
        f"Google 2011, a {per} each", usage.astype(np.float32), np.nanmax(usage, axis=1).astype(float), 600.0
    )


def synthetic(seed: int = 1, count: int = 40, days: int = 16) -> TraceSet:
    """VMs with a day (half of them), night jobs, weekly backups and plain noise; one in five comes or goes."""
    rng = np.random.default_rng(seed)
    slots = np.arange(days * DAY_SLOTS)
    hour = slots % DAY_SLOTS / 12.0
    usage = np.zeros((count, len(slots)), np.float32)
    for row in usage:
        base, swing, peak_hour = rng.uniform(0.05, 0.2), rng.uniform(0.2, 0.6), rng.uniform(8, 18)
        character = rng.uniform()
        shape = np.exp(-(((hour - peak_hour + 12) % 24 - 12) ** 2) / 8.0)
        if character > 0.5:
            shape = ((hour > peak_hour - 8) & (hour < peak_hour - 7)).astype(float)
        if character > 0.75:
            shape = shape * (slots // DAY_SLOTS % 7 == int(rng.integers(7)))
        if character > 0.9:
            shape = np.zeros(len(slots))
        row[:] = np.clip(base + swing * shape * rng.uniform(0.85, 1.15) + rng.normal(0, 0.02, len(slots)), 0, 1)
        if rng.uniform() < 0.2:
            row[: int(rng.integers(len(slots)))] = np.nan
    return TraceSet("synthetic", usage, np.ones(count), JULY_2013_T)


SETS: dict[str, Callable[[Path], TraceSet]] = {
    "bitbrains-07": lambda folder: bitbrains(folder, "07"),
    "bitbrains-08": lambda folder: bitbrains(folder, "08"),
    "bitbrains-09": lambda folder: bitbrains(folder, "09"),
    "bitbrains-07-memory": lambda folder: bitbrains(folder, "07", "memory"),
    "bitbrains-08-memory": lambda folder: bitbrains(folder, "08", "memory"),
    "google-task": lambda folder: google(folder, "task"),
    "google-job": lambda folder: google(folder, "job"),
}
