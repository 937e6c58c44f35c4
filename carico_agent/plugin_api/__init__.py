"""All that a plugin may import: what it is, what it sees, and the only way it may change something.

A plugin is a folder (code, README, sample configuration, test); `plugins/template` is the manual. Its `tick` runs in
its own thread, so it may be slow without delaying a sample; the view it gets is read-only, and a cgroup is changed
through the writer alone, which keeps the journal that puts everything back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from carico_agent.plugin_api.declare import Range
from carico_agent.plugin_api.formats import Stall, format_cpus, parse_cpus, parse_flat, parse_quantity, parse_stall

__all__ = [
    "CgroupUsage",
    "Change",
    "ContainerView",
    "Cpu",
    "Metric",
    "NodeInfo",
    "Outcome",
    "Plugin",
    "PodView",
    "Range",
    "Reader",
    "Refuse",
    "Stall",
    "State",
    "View",
    "Writer",
    "format_cpus",
    "parse_cpus",
    "parse_flat",
    "parse_quantity",
    "parse_stall",
    "read_usage",
]


class Refuse(Exception):
    """Raised by `start`: this plugin will not run here, and says why in one line."""


@dataclass(frozen=True, slots=True)
class CgroupUsage:
    """Counters of one cgroup as the kernel names them; None = unknown (no controller, no quota, no PSI), never 0."""

    cpu_usage_usec: int | None = None
    nr_periods: int | None = None
    nr_throttled: int | None = None
    throttled_usec: int | None = None
    memory_current: int | None = None
    pressure: Mapping[str, Stall] = field(default_factory=dict)
    """By resource: "cpu", "memory", "io"."""
    read_s: float | None = None
    """Monotonic time of the reading [s]: Pods are read in turn, so divide by the time between readings, not ticks."""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container of a Pod. `cgroup` is the absolute folder of its leaf group, `inode` that folder's identity."""

    id: str
    name: str
    cgroup: str
    inode: int
    pid: int = 0
    usage: CgroupUsage = field(default_factory=CgroupUsage)


@dataclass(frozen=True, slots=True)
class PodView:
    """One Pod. Without Kubernetes a container is its own Pod, and both name the same cgroup."""

    key: str
    name: str
    namespace: str
    uid: str
    cgroup: str
    inode: int
    containers: tuple[ContainerView, ...] = ()
    usage: CgroupUsage = field(default_factory=CgroupUsage)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    memory_request: int | None = None
    """What its containers request together [bytes], from the API server; None: not known, or not all request memory."""
    memory_limit: int | None = None

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def qos(self) -> Literal["guaranteed", "burstable", "besteffort", "unknown"]:
        """The Kubernetes class, which the kubelet writes into the cgroup's path and nowhere else on the node.

        >>> PodView("k", "p", "ns", "u", "/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice", 7).qos
        'guaranteed'
        """
        if "kubepods" not in self.cgroup:
            return "unknown"
        if "besteffort" in self.cgroup:
            return "besteffort"
        return "burstable" if "burstable" in self.cgroup else "guaranteed"


@dataclass(frozen=True, slots=True)
class Cpu:
    """Where one logical CPU sits. CPUs with equal `core` are threads of one core; ids are unique in the whole node."""

    cpu: int
    core: int
    l3: int
    numa: int
    socket: int


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What does not change while the node runs (CPUs online and swap are looked at again now and then)."""

    cores: int
    memory_total_bytes: int = 0
    swap_total_bytes: int = 0
    page_bytes: int = 4096
    topology: tuple[Cpu, ...] = ()
    cgroup_root: str = "/sys/fs/cgroup"
    proc_root: str = "/proc"


class Reader(Protocol):
    """Reads one file of one cgroup: its text without the last newline, or None when it is not there."""

    def __call__(self, cgroup: str, key: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class View:
    """What a plugin sees: one moment of the node, never to be changed.

    `now_s` is monotonic; `status` is what `/v1/status` says; `read` reaches files that are not counted for everybody,
    for example `view.read(pod.cgroup, "memory.events")`.
    """

    now_s: float
    node: NodeInfo
    pods: tuple[PodView, ...]
    read: Reader
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A request: this file of this cgroup (and no other that may come to stand under the same path) gets this value."""

    cgroup: str
    inode: int
    key: str
    value: str
    reason: str


State = Literal["written", "dry-run", "unchanged", "held", "refused", "gone", "failed", "pending", "restored"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request. `old` is what stood there, `detail` says why in one line."""

    change: Change
    state: State
    old: str | None = None
    detail: str = ""


class Writer(Protocol):
    """The only way to change a cgroup: journal first, then write, then read back; dry-run unless configured."""

    dry_run: bool

    def write(self, changes: Sequence[Change]) -> list[Outcome]:
        """Carry out requests that belong together, in the order the kernel needs; one outcome each, same order."""
        ...

    def undo(self, cgroup: str, inode: int, key: str, reason: str) -> Outcome:
        """Put the original value back at once, unless another program has changed it since."""
        ...

    def original(self, cgroup: str, inode: int, key: str) -> str | None:
        """The value that stood there before ours, or None when the one there now is not ours."""
        ...


@dataclass(frozen=True, slots=True)
class Metric:
    """One number for the metrics page; the host adds the prefix `carico_plugin_` and the label `plugin`."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    help: str = ""
    kind: Literal["gauge", "counter"] = "gauge"


class Plugin:
    """Base of every plugin: a name, declared settings, and four calls, of which only `tick` must be written."""

    name: ClassVar[str]
    """As in the configuration; also the folder's name."""

    Settings: ClassVar[type]
    """A frozen dataclass; the string below each field documents it. Validated before the agent starts."""

    period_s: ClassVar[float] = 5.0
    """Time between ticks [s]."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def start(self, view: View) -> None:
        """Called once. Raise `Refuse("reason")` when this node is not for you."""

    def tick(self, view: View, writer: Writer) -> None:
        """Look, and perhaps ask the writer for something. Keep it light: what takes long is called less often."""
        raise NotImplementedError

    def report(self) -> dict[str, Any]:
        """What `/v1/plugins/NAME` shows; JSON types only."""
        return {}

    def answer(self, ask: Mapping[str, str]) -> dict[str, Any]:
        """The same with questions (`?pod=web&request_ms=50`); plugins that know no questions just report."""
        return self.report()

    def metrics(self) -> Iterable[Metric]:
        return ()


def read_usage(read: Reader, cgroup: str, now_s: float) -> CgroupUsage:
    """The counters of one cgroup: five small files, 100 µs where this was written. For a few groups, or seldom."""
    stat, current = parse_flat(read(cgroup, "cpu.stat")), read(cgroup, "memory.current")
    found = {name: parse_stall(read(cgroup, f"{name}.pressure")) for name in ("cpu", "memory", "io")}
    stalls = {name: stall for name, stall in found.items() if stall}
    return CgroupUsage(
        stat.get("usage_usec"),
        stat.get("nr_periods"),
        stat.get("nr_throttled"),
        stat.get("throttled_usec"),
        int(current) if current and current.isdigit() else None,
        stalls,
        now_s,
    )
