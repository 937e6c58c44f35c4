"""The session's wiring, with a scripted containerd: what happens between subscribing and the end of the listing."""

import asyncio

import pytest

from carico_agent.node.pods import containerd
from carico_agent.node.pods.pods import Container, PodChange, PodTable, Snapshot, Task, TaskStatus

from .conftest import until

A, B = ("default", "a"), ("default", "b")


class Script:
    """Stands for containerd.Client."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[PodChange | None] = asyncio.Queue()
        self.lists: asyncio.Queue[Snapshot] = asyncio.Queue()
        self.asked = []
        self.calls = []

    async def changes(self, wanted):
        self.calls.append("subscribe")
        while (change := await self.events.get()) is not None:
            yield change
        raise containerd.Lost("gone")

    async def snapshot(self, namespaces):
        self.calls.append("list")
        return await self.lists.get()

    async def container(self, ref):
        self.asked.append(ref)
        return Container({})


@pytest.fixture
async def session():
    script, table, applied = Script(), PodTable(), []
    work = containerd.Session(
        script, table, ("default",), ("/",), 1000.0, lambda *_: None, lambda c, t: applied.append(c)
    )
    task = asyncio.create_task(work.run())
    yield script, table, applied, task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_events_during_the_listing(session):
    script, table, applied, _ = session
    await until(lambda: "list" in script.calls)
    assert script.calls == ["subscribe", "list"]
    script.events.put_nowait(PodChange("/containers/create", B))
    script.events.put_nowait(PodChange("/tasks/create", B, pid=8))
    script.events.put_nowait(PodChange("/tasks/start", B, pid=8))
    script.events.put_nowait(PodChange("/tasks/exit", A, pid=7))
    await until(lambda: len(applied) == 4)
    # the lists were made before all this: a ran, b was not there
    script.lists.put_nowait(Snapshot({A: Container({})}, {A: Task(7, TaskStatus.RUNNING)}))
    await until(lambda: applied[-1] is None)
    assert (table.count, list(table.pods), script.asked) == (1, ["default/b"], [B])


async def test_a_doubt_brings_a_new_listing_and_the_end_of_the_stream_is_a_loss(session, monkeypatch):
    monkeypatch.setattr(containerd, "DOUBT_PAUSE_S", 0.0)
    monkeypatch.setattr(containerd, "SECOND_LOOK_S", 0.0)
    script, table, applied, task = session
    script.lists.put_nowait(Snapshot())
    script.lists.put_nowait(Snapshot())
    await until(lambda: applied == [None, None])
    script.events.put_nowait(PodChange("/tasks/start", A, pid=7))  # its creation was not reported
    await until(lambda: script.calls.count("list") == 3)
    assert table.count == 1
    script.lists.put_nowait(Snapshot())  # a ghost: a start retried after its exit
    await until(lambda: table.count == 0)
    script.events.put_nowait(None)
    with pytest.raises(containerd.Lost):
        await task
