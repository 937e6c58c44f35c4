"""A day of telemetry with churn through the agent's own flow, as fast as it goes: memory and descriptors stay flat.

An hour in `make test`; `make soak` takes the whole day (CARICO_SOAK_H=24).
"""

import gc
import os
from collections.abc import Iterator

import pytest

from carico_agent.core import CapacityModel
from carico_agent.lib.net.metrics import render
from carico_agent.lib.supervise.cost import OwnCost
from carico_agent.node import state
from carico_agent.node.model_feed import ModelFeed
from carico_agent.node.pipeline import Pipeline, model_config
from carico_agent.node.pods.events import Event, EventLog
from carico_agent.node.publish.families import status_metrics
from carico_agent.node.publish.latest import LatestStatus
from carico_agent.node.publish.line import human_line
from carico_agent.node.publish.status import status_of
from carico_agent.node.reservations import Reservations
from carico_agent.node.sampling import Reading, TraceRow
from carico_agent.node.sampling.queue import SampleQueue, UpdateClock
from carico_agent.settings import Settings
from lab.sim.synthetic import SCENARIOS, samples

HOURS = float(os.environ.get("CARICO_SOAK_H", "1"))
PIECE_S = 600.0
GROWTH_BYTES = 1_000_000
RESOURCES = ("cpu", "memory")


def rows(hours: float) -> Iterator[TraceRow]:
    """Pieces of ten minutes, each of another scenario, as counters the kernel could have shown."""
    total = idle = pressure_usec = 0
    for piece in range(max(1, round(hours * 3600 / PIECE_S))):
        scenario, pods, churn_until_t = SCENARIOS[piece % len(SCENARIOS)], 0, 0.0
        for sample in samples(scenario, piece, PIECE_S):
            if sample.pods != pods:
                pods, churn_until_t = sample.pods, sample.t + 1.5
            busy = min(1.0, 2 * sample.usage[0])
            total, idle = total + 40, idle + round(40 * (1 - busy))
            pressure_usec += round(1e5 * max(0.0, 2 * sample.usage[0] - 1))
            reading = Reading(
                piece * PIECE_S + sample.t,
                4,
                total,
                idle,
                pressure_usec,
                memory_total_kb=1_000_000,
                memory_available_kb=round(1e6 * (1 - sample.usage[1])),
            )
            yield TraceRow(reading, pods, sample.t < churn_until_t)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.long
def test_memory_and_descriptors_stay_flat() -> None:
    settings = Settings()
    queue, clock = SampleQueue[TraceRow](), UpdateClock()
    feed = ModelFeed(Pipeline(CapacityModel(RESOURCES, model_config(settings, 4))), queue.take, OwnCost())
    latest, held, log = LatestStatus(settings.socket.ttl_s), Reservations(1000, 600.0, 200), EventLog()
    resident, opened, pods, updates = list[int](), descriptors(), 0, 0
    for tick, row in enumerate(rows(HOURS)):
        t = row.reading.t
        if row.pods != pods:  # as the runtime would report it, between two ticks
            pods = row.pods
            feed.count(t, pods, True)
            log.append(Event(t, t, "/tasks/start", count=pods, churn=True))
        queue.put(row)
        if clock.due(t):
            updates += 1
            feed.step()
            estimate, usage = feed.model.estimate(), feed.usage
            latest.publish(status_of("soak", RESOURCES, estimate, usage.detail if usage else {}))
            if estimate.pod_capacity >= 1:
                held.reserve(t, estimate.pod_capacity, 1, 0.5, "soak", owner="uid 1000")
            human_line(latest.status)
            latest.encoded()
        if tick % 600 == 599:  # once a minute: what is saved and scraped
            state.decode(state.encode(feed.model))
            render(status_metrics(latest.status, latest.age_s))
        if tick % 6000 == 5999:
            gc.collect()
            resident.append(OwnCost.resident_bytes())
    first = resident[min(1, len(resident) - 1)]
    print(
        f"{updates} updates in {HOURS:g} h; RSS {first / 1e6:.2f} MB after 20 min, {resident[-1] / 1e6:.2f} in the "
        f"end, most {max(resident) / 1e6:.2f}; descriptors {opened} -> {descriptors()}"
    )
    assert updates >= 0.98 * HOURS * 3600
    assert max(resident) - first <= GROWTH_BYTES
    assert descriptors() == opened
    assert len(held.state()) <= 2
