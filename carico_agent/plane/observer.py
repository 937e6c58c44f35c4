"""Looks at a control plane now and then, and remembers what it needs for windows and for the curve.

Behind a load balancer another API server may answer each time. Counters of one say nothing of another: the last reading
of each is kept, by the time its process began, and the window of the busiest one is what is reported and decided on.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from carico_agent.lib.kube.client import KubeClient
from carico_agent.plane import processes
from carico_agent.plane.arguments import compare, describe_limiter, limiters
from carico_agent.plane.component_access import Endpoints
from carico_agent.plane.components import API, KINDS, executing, held_up, levels, load_of, needs, widths
from carico_agent.plane.diagnosis import MAX_ROWS, NOTHING, PlaneDiagnosis, diagnose
from carico_agent.plane.learn import LearnedCurve
from carico_agent.plane.lists import list_memory, memory_warning, resource_lists
from carico_agent.plane.recommend import PlaneState, SeatRecommendation, recommend
from carico_agent.plane.scrape import scrape_all
from carico_agent.plane.servers import ApiServers, ServerReading
from carico_agent.plane.window import Scrape, Window, between
from carico_agent.settings import PlaneSettings


@dataclass(frozen=True, slots=True)
class Observation:
    """One look: what is known, and what follows from it."""

    diagnosis: PlaneDiagnosis
    recommendation: SeatRecommendation | str
    seats: dict[str, int]
    """Per level, as the API server applies them."""
    fresh: bool
    """Whether the API server's metrics came."""
    held_up: str = ""
    """Which level waits or rejects while the CPU has room; empty: none."""
    widths: Mapping[str, float] = field(default_factory=dict)
    """Seats per executing request, by level."""


class Observer:
    """`look` once per period; close it."""

    def __init__(self, client: KubeClient, settings: PlaneSettings, root: str = "/") -> None:
        self._client, self._settings, self._root = client, settings, root
        self.cores = settings.cores or float(os.cpu_count() or 1)
        self.learned = LearnedCurve()
        self.servers = ApiServers()
        self._endpoints = Endpoints(settings.components, client.access)
        self._readings: dict[str, Scrape] = {}
        self._periods: dict[str, processes.Periods | None] = {}

    async def aclose(self) -> None:
        await self._endpoints.close()

    async def observe(self) -> Observation:
        """Read all metrics; never raises for a component that does not answer."""
        missing: dict[str, str] = {}
        fresh = await self.servers.read(self._client, missing)
        if fresh is not None:
            self._learn(fresh.reading, fresh.window)
        windows: dict[str, Window | None] = {}
        if self.servers.known:
            windows[API] = self.servers.worst(fresh)
        for name, new in (await scrape_all(self._endpoints, missing)).items():
            windows[name] = between(self._readings[name], new) if name in self._readings else None
            self._readings[name] = new
        return self._seen(windows, missing, fresh)

    def _seen(
        self, windows: Mapping[str, Window | None], missing: Mapping[str, str], fresh: ServerReading | None
    ) -> Observation:
        api, own = windows.get(API), self._settings
        busy_cores = self._busy_cores(windows)
        found = self._recommend(api, busy_cores)
        seen = diagnose(
            windows,
            missing,
            self._throttled(),
            self.cores,
            found,
            self.learned.points(),
            own.busy_ratio,
            self.learned.peak(),
            self.servers.count,
        )
        seen = self._with_lists(seen, windows)
        has_room = api is not None and busy_cores < own.busy_ratio * self.cores
        waits = held_up(fresh.window) if has_room and fresh and fresh.window else ""
        seats, width = (levels(api), widths(api)) if api else ({}, {})
        return Observation(seen, found, seats, fresh is not None, waits, width)

    def _with_lists(self, seen: PlaneDiagnosis, windows: Mapping[str, Window | None]) -> PlaneDiagnosis:
        """Who lists, what it needs of memory, and which component waits for its own arguments."""
        api, here = windows.get(API), processes.find(self._root)
        values = {name: processes.argument_values(pid, self._root) for name, pid in here.items()}
        limited = [describe_limiter(one, values.get(one.component, {})) for one in limiters(windows)]
        memory = list_memory(api, widths(api)) if api else None
        limit = processes.memory_bytes(here[API], self._root) if API in here else None
        warning = memory_warning(memory, limit)
        return replace(
            seen,
            lists=resource_lists(api)[:MAX_ROWS] if api else [],
            memory=memory,
            warnings=[*([warning] if warning else []), *limited],
            arguments=[row for name, flags in values.items() for row in compare(name, flags)],
            remedy=limited[0] if limited and seen.remedy == NOTHING else seen.remedy,
        )

    def _learn(self, reading: Scrape, window: Window | None) -> None:
        if window is None:
            return
        load, at_once = load_of(API, window), executing(window)
        if load is not None and at_once is not None and load.requests > 0:
            self.learned.add(reading.time_s, at_once, load.cores)

    def _busy_cores(self, windows: Mapping[str, Window | None]) -> float:
        loads = [load_of(name, window) for name, window in windows.items() if window is not None and name in KINDS]
        return sum(load.cores for load in loads if load is not None)

    def _recommend(self, api: Window | None, busy_cores: float) -> SeatRecommendation | str:
        load = load_of(API, api) if api is not None else None
        now = PlaneState(load, self.learned.curve(), busy_cores, self.cores, needs(api) if api is not None else {})
        own = self._settings
        return recommend(now, own.availability, own.busy_ratio, own.min_seats)

    def _throttled(self) -> dict[str, float | None]:
        """Of components that run on this machine."""
        old, self._periods = (
            self._periods,
            {name: processes.periods(pid, self._root) for name, pid in processes.find(self._root).items()},
        )
        return {name: processes.throttled_ratio(old.get(name), new) for name, new in self._periods.items()}
