"""containerd's event stream and lists over its unix socket (1.6 and 2.x).

Subscribe first, list second, then apply what came meanwhile (pods.py explains why that is exact). containerd does not
acknowledge a subscription, so the first listing may overtake it by a hair; a second one follows a second later.
Later listings come every `resync_s`, and soon after an event that cannot be explained.

Import this module only when there is a socket to talk to: grpc and protobuf cost about 13 MB.

Why grpc.aio, not a thread with a plain channel: it is resident with 43 MB against 42 (importing grpc imports grpc.aio
anyway), and idles at 0.04 % of a core against 0.16 to 0.25 %, because a plain channel wakes its waiting thread every
0.1 s (grpc/_common.py). `lab/bench/runtime.py` prints both.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError

from carico_agent.node.pods.container_names import ContainerNames
from carico_agent.node.pods.pods import Container, PodChange, PodTable, Ref, Snapshot, Task, TaskStatus
from carico_agent.node.pods.proto import containers_pb2, events_pb2, payloads_pb2, tasks_pb2, types_pb2, version_pb2

CALL_TIMEOUT_S = 10.0
SECOND_LOOK_S = 1.0
DOCKER = "moby"
"""The namespace of Docker's containers."""
DOUBT_PAUSE_S = 2.0
CHANNEL_OPTIONS = [
    # a List carries the OCI spec of every container, about 15 KB each: 4 MB, grpc's default, end near 250 of them
    ("grpc.max_receive_message_length", 64 << 20),
    # without this a new channel inherits the reconnection delay of the lost one; ours is supervise.backoff
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]

PAYLOADS: dict[str, Any] = {
    "/containers/create": payloads_pb2.ContainerCreate,
    "/containers/update": payloads_pb2.ContainerUpdate,
    "/containers/delete": payloads_pb2.ContainerDelete,
    "/tasks/create": payloads_pb2.TaskCreate,
    "/tasks/start": payloads_pb2.TaskStart,
    "/tasks/exit": payloads_pb2.TaskExit,
    "/tasks/delete": payloads_pb2.TaskDelete,
    "/tasks/oom": payloads_pb2.TaskOOM,
    "/tasks/exec-added": payloads_pb2.TaskExecAdded,
    "/tasks/exec-started": payloads_pb2.TaskExecStarted,
    "/tasks/paused": payloads_pb2.TaskPaused,
    "/tasks/resumed": payloads_pb2.TaskResumed,
}


class Lost(ConnectionError):
    """containerd is not there (any more)."""


def filters(namespaces: Iterable[str], topics: Iterable[str]) -> list[str]:
    """Subscription filters: any of them must match; the parts of one are joined by and.

    >>> filters(["k8s.io"], ["/containers/", "/tasks/start"])
    ['namespace=="k8s.io",topic~="^(/containers/|/tasks/start)"']
    """
    topic = json.dumps("^(" + "|".join(map(re.escape, topics)) + ")")
    return [f"namespace=={json.dumps(namespace)},topic~={topic}" for namespace in namespaces]


def change_of(envelope: types_pb2.Envelope) -> PodChange | None:
    """What an envelope says; None for topics we have no use for."""
    kind = PAYLOADS.get(envelope.topic)
    if kind is None:
        return None
    payload = kind.FromString(envelope.event.value)
    is_container = envelope.topic.startswith("/containers/")
    return PodChange(
        topic=envelope.topic,
        ref=(envelope.namespace, payload.id if is_container else payload.container_id),
        time_s=envelope.timestamp.seconds + envelope.timestamp.nanos / 1e9,
        pid=getattr(payload, "pid", 0),
        process="" if is_container else getattr(payload, "id", "") or getattr(payload, "exec_id", ""),
        labels=dict(payload.labels) if envelope.topic == "/containers/update" else None,
    )


def snapshot_of(
    namespace: str, listed: containers_pb2.ListContainersResponse, running: tasks_pb2.ListTasksResponse
) -> Snapshot:
    """What two lists say of one namespace. Tasks.List fills `id`, and `container_id` only in newer versions."""
    tasks = {(namespace, task.container_id or task.id): Task(task.pid, _status(task.status)) for task in running.tasks}
    return Snapshot({(namespace, c.id): Container(dict(c.labels), c.image) for c in listed.containers}, tasks)


class ContainerdClient:
    """The five calls we need, with plain data on this side."""

    def __init__(self, socket: str, names: ContainerNames | None = None) -> None:
        """`names`: describes the containers of Docker, of which containerd has the id only."""
        self._names = names
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)
        service = "/containerd.services."
        self._version = self._unary(f"{service}version.v1.Version/Version", version_pb2.VersionResponse)
        self._get = self._unary(f"{service}containers.v1.Containers/Get", containers_pb2.GetContainerResponse, True)
        self._containers = self._unary(f"{service}containers.v1.Containers/List", containers_pb2.ListContainersResponse)
        self._tasks = self._unary(f"{service}tasks.v1.Tasks/List", tasks_pb2.ListTasksResponse)
        self._subscribe = self._channel.unary_stream(
            f"{service}events.v1.Events/Subscribe",
            request_serializer=events_pb2.SubscribeRequest.SerializeToString,
            response_deserializer=types_pb2.Envelope.FromString,
        )

    async def version(self) -> str:
        return str((await self._version(Empty(), None)).version)

    async def container(self, ref: Ref) -> Container | None:
        """One container's labels; None when it is gone."""
        answer = await self._get(containers_pb2.GetContainerRequest(id=ref[1]), ref[0])
        found = answer.container if answer is not None else None
        return self._described(ref, Container(dict(found.labels), found.image)) if found is not None else None

    async def snapshot(self, namespaces: Iterable[str]) -> Snapshot:
        containers: dict[Ref, Container] = {}
        tasks: dict[Ref, Task] = {}
        for namespace in namespaces:
            listed = await self._containers(containers_pb2.ListContainersRequest(), namespace)
            running = await self._tasks(tasks_pb2.ListTasksRequest(), namespace)
            found = snapshot_of(namespace, listed, running)
            containers.update({ref: self._described(ref, one) for ref, one in found.containers.items()})
            tasks.update(found.tasks)
        return Snapshot(containers, tasks)

    def _described(self, ref: Ref, container: Container) -> Container:
        record = self._names.recorded(ref[1]) if self._names is not None and ref[0] == DOCKER else None
        if record is None:
            return container
        return Container({**record.labels, **(container.labels or {})}, container.image or record.image, record.name)

    async def changes(self, wanted: list[str]) -> AsyncIterator[PodChange]:
        """The event stream, until containerd goes."""
        stream = self._subscribe(events_pb2.SubscribeRequest(filters=wanted))
        try:
            async for envelope in stream:
                change = change_of(envelope)
                if change is not None:
                    yield change
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from error
        except DecodeError as error:  # a connection anew begins with lists, which say what this event would have
            raise Lost(f"an event that cannot be read: {error}") from error
        finally:
            stream.cancel()
        raise Lost("the event stream has ended")

    async def close(self) -> None:
        await self._channel.close(None)

    def _unary(self, method: str, answer: Any, may_miss: bool = False) -> Callable[[Any, str | None], Awaitable[Any]]:
        """A call; `may_miss`: "not found" is an answer (None) like any other."""
        call = self._channel.unary_unary(
            method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )

        async def ask(message: Any, namespace: str | None) -> Any:
            metadata = (("containerd-namespace", namespace),) if namespace else ()
            try:
                return await call(message, metadata=metadata, timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                if may_miss and error.code() is grpc.StatusCode.NOT_FOUND:
                    return None
                raise _lost(error) from error

        return ask


class Session:
    """One connection: from the first snapshot to the loss of the stream."""

    def __init__(
        self,
        client: ContainerdClient,
        table: PodTable,
        namespaces: tuple[str, ...],
        topics: tuple[str, ...],
        resync_s: float,
        on_received: Callable[[PodChange, float], None],
        on_applied: Callable[[PodChange | None, float], None],
    ) -> None:
        """`on_received` is called when an event arrives, `on_applied` when the table has it; with None after a list."""
        self._client, self._table = client, table
        self._namespaces, self._filters, self._resync_s = namespaces, filters(namespaces, topics), resync_s
        self._on_received, self._on_applied = on_received, on_applied
        self._doubt = asyncio.Event()

    async def run(self) -> None:
        """Returns never; raises Lost."""
        tasks = {asyncio.create_task(self._read()), asyncio.create_task(self._list_for_ever())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._table.drop_snapshot()

    async def _read(self) -> None:
        async for change in self._client.changes(self._filters):
            arrived_s = time.monotonic()
            self._on_received(change, arrived_s)
            self._table.apply(change)
            if change.topic in ("/containers/create", "/tasks/start"):
                await self._name(change.ref)
            self._on_applied(change, arrived_s)
            if self._table.doubtful:
                self._doubt.set()

    async def _list_for_ever(self) -> None:
        await self._list()
        await asyncio.sleep(SECOND_LOOK_S)
        while True:
            self._doubt.clear()
            await self._list()
            try:
                await asyncio.wait_for(self._doubt.wait(), self._resync_s)
                await asyncio.sleep(DOUBT_PAUSE_S)  # let the burst pass that raised the doubt
            except TimeoutError:
                pass

    async def _list(self) -> None:
        self._table.open_snapshot()
        snapshot = await self._client.snapshot(self._namespaces)
        self._table.close_snapshot(snapshot)
        for ref in self._table.nameless():
            await self._name(ref)
        self._on_applied(None, time.monotonic())

    async def _name(self, ref: Ref) -> None:
        """Learn a container's labels unless known: only they distinguish a Pod from one of its containers."""
        if self._table.is_named(ref):
            return
        container = await self._client.container(ref)
        if container is not None:
            self._table.learn(ref, container)


def _status(number: int) -> TaskStatus:
    try:
        return TaskStatus(number)
    except ValueError:  # a status younger than this code
        return TaskStatus.UNKNOWN


def _lost(error: grpc.aio.AioRpcError) -> Lost:
    # grpc wraps the useful words: "failed to connect to …; last error: …: … error: Connection refused"
    return Lost(f"{error.code().name.lower()}: {(error.details() or '').rpartition('error: ')[2]}")
