"""What the kernel says about this node: one signal, one file; parse() is pure, read() is thin."""

from carico_agent.lib.trace.file import BadTrace, PodMeasurements, TraceHeader, TraceRow, TraceWriter, read_trace
from carico_agent.lib.trace.reading import Reading
from carico_agent.node.sampling.cgroups import cgroup_mode
from carico_agent.node.sampling.node import Grab, NodeReader
from carico_agent.node.sampling.reading import Usage, derive
from carico_agent.node.sampling.root import Absent, Root

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
