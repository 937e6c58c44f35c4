"""The event log: bounded everywhere, honest about what it lost."""

import asyncio

from carico_agent.node.pods.events import Event, EventLog


def event(number: int) -> Event:
    return Event(time_s=float(number), t=0.0, topic="/tasks/start", container_id=str(number))


async def test_a_slow_reader_loses_the_oldest_and_is_told():
    log = EventLog(ring=4)
    with log.subscribe(size=3) as slow:
        for number in range(10):
            log.append(event(number))
        assert [(await slow.get()).container_id for _ in range(3)] == ["7", "8", "9"]
        assert (slow.take_dropped(), slow.take_dropped()) == (7, 0)
    log.append(event(10))
    assert (log.total, [e.container_id for e in log.recent()]) == (11, ["7", "8", "9", "10"])


async def test_a_waiting_reader_is_woken_and_replay_comes_first():
    log = EventLog()
    log.append(event(1))
    log.append(event(2))
    with log.subscribe(replay=1) as reader:
        assert (await anext(reader)).container_id == "2"
        waiting = asyncio.create_task(reader.get())
        await asyncio.sleep(0)
        log.append(event(3))
        assert (await waiting).container_id == "3"


def test_as_dict_is_for_json():
    row = Event(1.5, 0.0, "/tasks/exit", "k8s.io", "a", "uid", "web", "prod", 3, True, {"pid": 7}).as_dict()
    assert row == {
        "time": "1970-01-01T00:00:01.500000Z",
        "topic": "/tasks/exit",
        "namespace": "k8s.io",
        "container_id": "a",
        "pod": "uid",
        "pod_name": "web",
        "pod_namespace": "prod",
        "count": 3,
        "churn": True,
        "pid": 7,
    }
