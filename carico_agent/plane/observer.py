"""Looks at a control plane now and then, and remembers what it needs for windows and for the curve."""

import os
from dataclasses import dataclass

from carico_agent.lib.kube.client import KubeClient
from carico_agent.plane import processes
from carico_agent.plane.components import API, KINDS, executing, levels, load_of, needs
from carico_agent.plane.diagnosis import PlaneDiagnosis, diagnose
from carico_agent.plane.learn import LearnedCurve
from carico_agent.plane.recommend import PlaneState, SeatRecommendation, recommend
from carico_agent.plane.scrape import scrape_all
from carico_agent.plane.window import Scrape, Window, between
from carico_agent.settings import PlaneSettings


@dataclass(frozen=True, slots=True)
class Look:
    """One look: what is known, and what follows from it."""

    diagnosis: PlaneDiagnosis
    recommendation: SeatRecommendation | str
    seats: dict[str, int]
    """Per level, as the API server applies them."""
    fresh: bool
    """Whether the API server's metrics came."""


class Observer:
    """`look` once per period."""

    def __init__(self, client: KubeClient, settings: PlaneSettings, root: str = "/") -> None:
        self._client, self._settings, self._root = client, settings, root
        self.cores = settings.cores or float(os.cpu_count() or 1)
        self.learned = LearnedCurve()
        self._readings: dict[str, Scrape] = {}
        self._periods: dict[str, processes.Periods | None] = {}

    async def look(self) -> Look:
        """Read all metrics; never raises for a component that does not answer."""
        readings, missing = await scrape_all(self._client, dict(self._settings.components))
        windows: dict[str, Window | None] = {
            name: between(self._readings[name], new) if name in self._readings else None
            for name, new in readings.items()
        }
        self._readings.update(readings)
        api = windows.get(API)
        self._learn(readings.get(API), api)
        found = self._recommend(windows)
        seen = diagnose(
            windows, missing, self._throttled(), self.cores, found, self.learned.points(), self._settings.busy_ratio
        )
        return Look(seen, found, levels(api) if api else {}, API in readings)

    def _learn(self, reading: Scrape | None, window: Window | None) -> None:
        if reading is None or window is None:
            return
        load, at_once = load_of(API, window), executing(window)
        if load is not None and at_once is not None and load.requests > 0:
            self.learned.add(reading.time_s, at_once, load.cores)

    def _recommend(self, windows: dict[str, Window | None]) -> SeatRecommendation | str:
        loads = [load_of(name, window) for name, window in windows.items() if window is not None and name in KINDS]
        busy = sum(load.cores for load in loads if load is not None)
        api = windows.get(API)
        load = load_of(API, api) if api is not None else None
        now = PlaneState(load, self.learned.curve(), busy, self.cores, needs(api) if api is not None else {})
        own = self._settings
        return recommend(now, own.availability, own.busy_ratio, own.min_seats)

    def _throttled(self) -> dict[str, float | None]:
        """Of components that run on this machine."""
        old, self._periods = (
            self._periods,
            {name: processes.periods(pid, self._root) for name, pid in processes.find(self._root).items()},
        )
        return {name: processes.throttled_ratio(old.get(name), new) for name, new in self._periods.items()}
