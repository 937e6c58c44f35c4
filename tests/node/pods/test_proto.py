"""Our .proto files are on the wire what containerd's own are."""

import subprocess
import sys
from pathlib import Path

import pytest

from carico_agent.node.pods.containerd import change_of
from carico_agent.node.pods.proto import payloads_pb2, types_pb2

TREE = Path(__file__).parents[3]


def field(number: int, value: bytes | int) -> bytes:
    """One field of the wire format, written by hand: the oracle must not use our own files."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def envelope(topic: str, payload: bytes, workload: str) -> bytes:
    """containerd.types.Envelope (2.x) and containerd.services.events.v1.Envelope (1.6): timestamp, namespace, …"""
    stamp = field(1, 1700000000) + field(2, 500_000_000)
    return (
        field(1, stamp)
        + field(2, b"k8s.io")
        + field(3, topic.encode())
        + field(4, field(1, f"containerd.events.{workload}".encode()) + field(2, payload))
    )


@pytest.mark.parametrize(
    ("topic", "workload", "payload", "pid", "process", "of_exec"),
    [
        ("/containers/create", "ContainerCreate", field(1, b"a") + field(2, b"image") + field(3, b""), 0, "", False),
        ("/containers/update", "ContainerUpdate", field(1, b"a"), 0, "", False),
        ("/containers/delete", "ContainerDelete", field(1, b"a"), 0, "", False),
        ("/tasks/create", "TaskCreate", field(1, b"a") + field(2, b"/bundle") + field(6, 300), 300, "", False),
        ("/tasks/start", "TaskStart", field(1, b"a") + field(2, 300), 300, "", False),
        ("/tasks/exit", "TaskExit", field(1, b"a") + field(2, b"a") + field(3, 300) + field(4, 137), 300, "a", False),
        (
            "/tasks/exit",
            "TaskExit",
            field(1, b"a") + field(2, b"probe") + field(3, 301) + field(6, 1),
            301,
            "probe",
            True,
        ),
        ("/tasks/delete", "TaskDelete", field(1, b"a") + field(2, 300) + field(3, 0), 300, "", False),
        ("/tasks/delete", "TaskDelete", field(1, b"a") + field(2, 301) + field(5, b"probe"), 301, "probe", True),
        ("/tasks/exec-added", "TaskExecAdded", field(1, b"a") + field(2, b"probe"), 0, "probe", True),
        ("/tasks/exec-started", "TaskExecStarted", field(1, b"a") + field(2, b"probe") + field(3, 9), 9, "probe", True),
        ("/tasks/paused", "TaskPaused", field(1, b"a"), 0, "", False),
        ("/tasks/resumed", "TaskResumed", field(1, b"a"), 0, "", False),
        ("/tasks/oom", "TaskOOM", field(1, b"a"), 0, "", False),
    ],
)
def test_events_as_containerd_sends_them(topic, workload, payload, pid, process, of_exec):
    change = change_of(types_pb2.Envelope.FromString(envelope(topic, payload, workload)))
    assert (change.topic, change.ref, change.time_s) == (topic, ("k8s.io", "a"), 1700000000.5)
    assert (change.pid, change.process, change.of_exec) == (pid, process, of_exec)
    assert payloads_pb2.DESCRIPTOR.message_types_by_name[workload].full_name == f"containerd.events.{workload}"


def test_other_topics_are_passed_over():
    assert change_of(types_pb2.Envelope(topic="/images/create")) is None


def test_grpc_is_not_loaded_without_a_socket():
    code = (
        "import sys, carico_agent.node.pods.watch; sys.exit('grpc' in sys.modules or 'google.protobuf' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=TREE).returncode == 0


async def test_an_event_that_cannot_be_read_ends_the_connection():
    """A new connection begins with lists, so nothing is lost; a task that dies of it would be."""
    from carico_agent.node.pods.containerd import ContainerdClient, Lost

    class Stream:
        cancelled = False

        async def __aiter__(self):
            yield types_pb2.Envelope.FromString(envelope("/tasks/start", b"\xff\xff", "TaskStart"))

        def cancel(self):
            self.cancelled = True

    client, stream = ContainerdClient("/nowhere"), Stream()
    client._subscribe = lambda wanted: stream
    with pytest.raises(Lost, match="cannot be read"):
        async for _ in client.changes([]):
            pass
    assert stream.cancelled
    await client.close()
