"""All that a plugin may import: what it is, what it sees, and the only way it may change something.

A plugin is a folder (code, README, sample configuration, test); `plugins/template` is the manual. Its `tick` runs in
its own thread, so it may be slow without delaying a sample; the view it gets is read-only, and a cgroup is changed
through the writer alone, which keeps the journal that puts everything back.

Why its own `Range`, the twin of the one in settings: settings and plugin_api are siblings, and siblings do not import
each other. The settings machinery recognises both by their two fields.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol


class Refuse(Exception):
    """Raised by `start`: this plugin will not run here, and says why in one line."""


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a number in a plugin's settings, both included: `Annotated[float, Range(0, 1)]`."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Stall:
    """Stall totals of one resource in microseconds (PSI); they only grow."""

    some_usec: int
    full_usec: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
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
class Container:
    """One container of a Pod. `cgroup` is the absolute folder of its leaf group, `inode` that folder's identity."""

    id: str
    name: str
    cgroup: str
    inode: int
    pid: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Pod:
    """One Pod. Without Kubernetes a container is its own Pod, and both name the same cgroup."""

    key: str
    name: str
    namespace: str
    uid: str
    cgroup: str
    inode: int
    containers: tuple[Container, ...] = ()
    usage: Usage = field(default_factory=Usage)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def qos(self) -> Literal["guaranteed", "burstable", "besteffort", "unknown"]:
        """The Kubernetes class, which the kubelet writes into the cgroup's path and nowhere else on the node.

        >>> Pod("k", "p", "ns", "u", "/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice", 7).qos
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
class NodeFacts:
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
    node: NodeFacts
    pods: tuple[Pod, ...]
    read: Reader
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A wish: this file of this cgroup (and no other that may come to stand under the same path) gets this value."""

    cgroup: str
    inode: int
    key: str
    value: str
    reason: str


State = Literal["written", "dry-run", "unchanged", "held", "refused", "gone", "failed", "pending", "restored"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a wish. `old` is what stood there, `detail` says why in one line."""

    change: Change
    state: State
    old: str | None = None
    detail: str = ""


class Writer(Protocol):
    """The only way to change a cgroup: journal first, then write, then read back; dry-run unless configured."""

    dry_run: bool

    def write(self, changes: Sequence[Change]) -> list[Outcome]:
        """Carry out wishes that belong together, in the order the kernel needs; one outcome per wish, same order."""
        ...

    def undo(self, cgroup: str, inode: int, key: str, reason: str) -> Outcome:
        """Put the original value back at once, unless somebody else has changed it since."""
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


def parse_flat(text: str | None) -> dict[str, int]:
    """A "flat keyed" cgroup file (cpu.stat, memory.stat, memory.events); {} when it is not there.

    >>> parse_flat("low 0\\nhigh 12")
    {'low': 0, 'high': 12}
    """
    pairs = (line.split() for line in (text or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


MOST_CPUS = 1 << 16  # Linux knows at most 8192; a damaged line must not fill the memory


def parse_stall(text: str | None) -> Stall | None:
    """Totals of a PSI file; `full` is missing for cpu before Linux 5.13.

    >>> parse_stall("some avg10=0.00 avg60=0.00 total=12\\nfull avg10=0.00 avg60=0.00 total=7")
    Stall(some_usec=12, full_usec=7)
    """
    lines = [line for line in (text or "").splitlines() if "total=" in line]
    totals = {line.split()[0]: int(line.rpartition("total=")[2]) for line in lines}
    return Stall(totals.get("some", 0), totals.get("full", 0)) if totals else None


def read_usage(read: Reader, cgroup: str, now_s: float) -> Usage:
    """The counters of one cgroup: five small files, 100 µs where this was written. For a few groups, or seldom."""
    stat, current = parse_flat(read(cgroup, "cpu.stat")), read(cgroup, "memory.current")
    found = {name: parse_stall(read(cgroup, f"{name}.pressure")) for name in ("cpu", "memory", "io")}
    stalls = {name: stall for name, stall in found.items() if stall}
    return Usage(
        stat.get("usage_usec"),
        stat.get("nr_periods"),
        stat.get("nr_throttled"),
        stat.get("throttled_usec"),
        int(current) if current and current.isdigit() else None,
        stalls,
        now_s,
    )


def parse_cpus(text: str) -> frozenset[int]:
    """A kernel list of CPUs.

    >>> sorted(parse_cpus("0-2,5"))
    [0, 1, 2, 5]
    """
    cpus: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if part:
            if not 0 <= int(first) <= int(last or first) < MOST_CPUS:
                raise ValueError(f"not a list of CPUs: {text[:80]!r}")
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """The kernel's way to write a list of CPUs.

    >>> format_cpus({5, 0, 1, 2})
    '0-2,5'
    """
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


_UNITS = {
    "": 1,
    "k": 1000,
    "M": 1000**2,
    "G": 1000**3,
    "T": 1000**4,
    "Ki": 1024,
    "Mi": 1024**2,
    "Gi": 1024**3,
    "Ti": 1024**4,
}


def parse_bytes(text: str) -> int:
    """A Kubernetes quantity of memory.

    >>> parse_bytes("256Mi"), parse_bytes("1500000"), parse_bytes("1.5G")
    (268435456, 1500000, 1500000000)
    """
    number = text.rstrip("kKMGTi")
    unit = text[len(number) :]
    if unit not in _UNITS or not number.replace(".", "", 1).isdecimal() or len(number) > 40:
        raise ValueError(f"{text!r} is not an amount of memory; write it like 256Mi")
    return int(float(number) * _UNITS[unit])
