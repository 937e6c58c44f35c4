"""What the kernel says about this node: one signal, one file; parse() is pure, read() is thin."""

from .cgroups import cgroup_mode
from .node import Grab, NodeReader
from .reading import Reading, Usage, derive
from .root import Absent, Root
from .trace import BadTrace, PodMeasurements, TraceHeader, TraceRow, TraceWriter, read_trace

__all__ = [
    "Absent",
    "BadTrace",
    "Grab",
    "NodeReader",
    "PodMeasurements",
    "Reading",
    "Root",
    "TraceHeader",
    "TraceRow",
    "TraceWriter",
    "Usage",
    "cgroup_mode",
    "derive",
    "read_trace",
]
