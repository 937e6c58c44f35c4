"""Which Pods run here: a state machine over container events and snapshots. No I/O, no clock.

What it believes. A container is a record (labels), a task is a process tree that runs, is paused, or has ended; both
are keyed by (containerd namespace, id). With CRI labels a Pod is its sandbox: it counts while the sandbox's task is
alive, and containers with the same Pod uid belong to it. Where a uid has containers but no sandbox record at all
(containerd 2.x with a sandboxer that keeps sandboxes outside the container store), it counts while any of them is
alive. Without CRI labels each live task is a Pod. Paused tasks are alive; created ones are not yet.

Why nothing is lost or counted twice. Each event *sets* the state of its key, so the last event of a key decides,
however often it is replayed. A snapshot is taken between `open_snapshot` and `close_snapshot`; events that arrive
meanwhile are applied at once *and* kept, and replayed over the snapshot in one step: keys with an event in between
are decided by the events, all others by the lists. An end that names another pid than the one known belongs to an
earlier life of a recreated id and is ignored. What cannot be explained sets `doubtful`, and the caller lists again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from types import MappingProxyType

from carico_agent.core.workload_names import is_per_node, is_service, workload_of

Ref = tuple[str, str]
"""(containerd namespace, container id)"""

CRI_ROLE = "io.cri-containerd.kind"
POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
NERDCTL_NAME = "nerdctl/name"


class TaskStatus(Enum):
    """Of a task. UNKNOWN: its shim did not answer; it holds resources, so it is alive until proven otherwise."""

    UNKNOWN = 0
    CREATED = 1
    RUNNING = 2
    STOPPED = 3
    PAUSED = 4
    PAUSING = 5


ALIVE = frozenset({TaskStatus.UNKNOWN, TaskStatus.RUNNING, TaskStatus.PAUSED, TaskStatus.PAUSING})


@dataclass(frozen=True, slots=True)
class Container:
    """A container record; `labels` is None until they were asked for."""

    labels: Mapping[str, str] | None = None
    image: str = ""
    name: str = ""
    """What its users call it, where its id is not that."""


@dataclass(frozen=True, slots=True)
class Task:
    pid: int
    status: TaskStatus
    started_s: float = 0.0
    """Wall clock of its start [s since 1970]; 0 = not known (it was found in a list)."""

    @property
    def alive(self) -> bool:
        return self.status in ALIVE


@dataclass(frozen=True, slots=True)
class PodChange:
    """An event as the state machine needs it."""

    topic: str
    ref: Ref
    time_s: float = 0.0
    pid: int = 0
    process: str = ""
    """The exec that started or ended; empty or the container's own id for the task itself."""
    labels: Mapping[str, str] | None = None

    @property
    def of_exec(self) -> bool:
        return self.process not in ("", self.ref[1])


@dataclass(frozen=True, slots=True)
class Snapshot:
    containers: Mapping[Ref, Container] = field(default_factory=dict)
    tasks: Mapping[Ref, Task] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Member:
    """A container of a Pod, with a live task."""

    id: str
    name: str
    pid: int
    paused: bool = False
    sandbox: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """A running Pod. `cgroup` is relative to the hierarchy's mount; inode 0 = not found (yet)."""

    key: str
    name: str
    namespace: str
    uid: str = ""
    containers: tuple[Member, ...] = ()
    started_s: float = 0.0
    counts: bool = True
    cgroup: str = ""
    inode: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    workload: str = ""
    """The template it came from, as `namespace/name`."""
    per_node: bool = False
    """Of a DaemonSet, or static: never the next Pod to arrive."""
    service: bool = False
    """Of a Deployment or a StatefulSet."""

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(member.pid for member in self.containers)


@dataclass(frozen=True, slots=True)
class Selector:
    """Which Pods count: all, but those whose namespace or name matches a glob.

    >>> Selector(skip_namespaces=("kube-*",)).counts("kube-system", "dns-1")
    False
    """

    skip_namespaces: tuple[str, ...] = ()
    skip_names: tuple[str, ...] = ()

    def counts(self, namespace: str, name: str) -> bool:
        skipped = any(fnmatchcase(namespace, glob) for glob in self.skip_namespaces)
        return not (skipped or any(fnmatchcase(name, glob) for glob in self.skip_names))


class PodTable:
    """Containers and tasks in, Pods and their count out.

    >>> table = PodTable()
    >>> table.apply(PodChange("/containers/create", ("default", "a"), labels={}))
    >>> table.apply(PodChange("/tasks/start", ("default", "a"), pid=7))
    >>> table.count, list(table.pods)
    (1, ['default/a'])
    """

    def __init__(self, selector: Selector | None = None, node_name: str = "") -> None:
        """`node_name`: by its end in a Pod's name static Pods are known."""
        self.count = 0
        self.pods: Mapping[str, Pod] = MappingProxyType({})
        self.doubtful = False
        self._selector, self._node_name = selector or Selector(), node_name
        self._containers: dict[Ref, Container] = {}
        self._tasks: dict[Ref, Task] = {}
        self._groups: dict[str, set[Ref]] = {}
        self._kept: list[PodChange] | None = None

    def apply(self, change: PodChange) -> None:
        """Take one event into account, at once."""
        if self._kept is not None:
            self._kept.append(change)
        before = self._key(change.ref)
        self._set(change)
        self._refresh({before, self._key(change.ref)}, change.ref)

    def open_snapshot(self) -> None:
        """From here on events are also kept for replay."""
        self._kept = []

    def close_snapshot(self, snapshot: Snapshot) -> None:
        """Replace everything by the snapshot and the events since `open_snapshot`, in one step."""
        asked, known = self._containers, self._tasks
        self._containers = dict(snapshot.containers)
        self._tasks = {ref: _aged(task, known.get(ref)) for ref, task in snapshot.tasks.items()}
        kept, self._kept, self.doubtful = self._kept or [], None, False
        for change in kept:
            self._set(change)
        for ref, container in self._containers.items():
            if container.labels is None and ref in asked:  # created meanwhile, and its labels were learned meanwhile
                self._containers[ref] = asked[ref]
        self._rebuild()

    def drop_snapshot(self) -> None:
        """The listing failed; what was kept is void."""
        self._kept = None

    def nameless(self) -> list[Ref]:
        """Containers whose labels have to be asked for, before a task is known to be a Pod or a member."""
        wanted = [ref for ref, container in self._containers.items() if container.labels is None]
        return wanted + [ref for ref in self._tasks if ref not in self._containers]

    def is_named(self, ref: Ref) -> bool:
        container = self._containers.get(ref)
        return container is not None and container.labels is not None

    def live(self) -> list[tuple[Ref, int]]:
        """Every live task with its pid."""
        return [(ref, task.pid) for ref, task in self._tasks.items() if task.alive]

    def learn(self, ref: Ref, container: Container) -> None:
        """The answer for one of `nameless`; ignored when the container is gone by now."""
        if ref in self._containers or ref in self._tasks:
            before = self._key(ref)
            self._containers[ref] = container
            self._refresh({before, self._key(ref)}, ref)

    def place(self, key: str, cgroup: str, inode: int, started_s: float = 0.0) -> None:
        """Where the Pod was found in the cgroup tree, and since when it runs if no event says."""
        pod = self.pods.get(key)
        if pod is None:
            return
        placed = replace(pod, cgroup=cgroup, inode=inode, started_s=pod.started_s or started_s)
        self.pods = MappingProxyType({**self.pods, key: placed})

    def pod_of(self, ref: Ref) -> str:
        """The key of the Pod the container belongs to, running or not; empty when unknown."""
        return self._key(ref) or ""

    def _set(self, change: PodChange) -> None:
        match change.topic:
            case "/containers/create":
                self._containers[change.ref] = Container(change.labels)
            case "/containers/update":
                if (known := self._containers.get(change.ref)) is not None:
                    self._containers[change.ref] = replace(known, labels=change.labels)
            case "/containers/delete":
                self._delete(change.ref)
            case "/tasks/create":
                self._tasks[change.ref] = Task(change.pid, TaskStatus.CREATED)
            case "/tasks/start":
                self._start(change)
            case "/tasks/exit" | "/tasks/delete" if not change.of_exec:
                self._end(change)
            case "/tasks/paused" | "/tasks/resumed":
                self._pause(change)

    def _start(self, change: PodChange) -> None:
        task = self._tasks.get(change.ref)
        if task is None:
            self.doubtful = True  # late, or its creation came before we subscribed
        elif task.status is TaskStatus.STOPPED and task.pid == change.pid:
            return  # shims retry events that failed to send: a start may come after its exit
        self._tasks[change.ref] = Task(change.pid, TaskStatus.RUNNING, change.time_s)

    def _end(self, change: PodChange) -> None:
        task = self._tasks.get(change.ref)
        if task is None:
            return
        if change.pid and task.pid and change.pid != task.pid:
            self.doubtful = True
            return
        if change.topic == "/tasks/delete":
            del self._tasks[change.ref]
        else:
            self._tasks[change.ref] = replace(task, status=TaskStatus.STOPPED)

    def _pause(self, change: PodChange) -> None:
        task = self._tasks.get(change.ref)
        if task is not None and task.status is not TaskStatus.STOPPED:
            status = TaskStatus.PAUSED if change.topic == "/tasks/paused" else TaskStatus.RUNNING
            self._tasks[change.ref] = replace(task, status=status)

    def _delete(self, ref: Ref) -> None:
        self._containers.pop(ref, None)
        task = self._tasks.get(ref)
        if task is None:
            return
        if task.alive:
            self.doubtful = True  # containerd refuses to delete a container that runs: the id was recreated
        else:
            del self._tasks[ref]

    def _key(self, ref: Ref) -> str | None:
        container = self._containers.get(ref)
        if container is None or container.labels is None:
            return None
        uid = container.labels.get(POD_UID, "") if container.labels.get(CRI_ROLE) else ""
        return uid or "/".join(ref)

    def _refresh(self, keys: Iterable[str | None], ref: Ref) -> None:
        pods = dict(self.pods)
        now = self._key(ref)
        for key in keys:
            if key is None:
                continue
            group = self._groups.setdefault(key, set())
            (group.add if key == now else group.discard)(ref)
            self._put(pods, key)
        self._publish(pods)

    def _rebuild(self) -> None:
        self._groups = {}
        for ref in self._containers:
            if key := self._key(ref):
                self._groups.setdefault(key, set()).add(ref)
        pods = dict(self.pods)
        for key in {*pods, *self._groups}:
            self._put(pods, key)
        self._publish(pods)

    def _put(self, pods: dict[str, Pod], key: str) -> None:
        """Bring one Pod up to date, keeping the place of one that is still the same."""
        group = self._groups.get(key, set())
        if not group:
            self._groups.pop(key, None)
        pod, old = self._make(key, group), pods.get(key)
        if pod is None:
            pods.pop(key, None)
        elif old is not None and set(old.pids) & set(pod.pids):
            pods[key] = replace(pod, cgroup=old.cgroup, inode=old.inode, started_s=old.started_s or pod.started_s)
        else:
            pods[key] = pod

    def _make(self, key: str, group: set[Ref]) -> Pod | None:
        live = {ref: task for ref in group if (task := self._tasks.get(ref)) is not None and task.alive}
        sandboxes = {ref for ref in group if self._labels(ref).get(CRI_ROLE) == "sandbox"}
        if not (live.keys() & sandboxes if sandboxes else live):
            return None
        # the sandbox first: its cgroup decides where the Pod is
        order = sorted(live, key=lambda ref: (ref not in sandboxes, ref))
        labels = self._labels(order[0])
        own_name = self._containers[order[0]].name or labels.get(NERDCTL_NAME) or order[0][1]
        namespace, name = labels.get(POD_NAMESPACE) or order[0][0], labels.get(POD_NAME) or own_name
        return Pod(
            key=key,
            name=name,
            namespace=namespace,
            uid=labels.get(POD_UID, ""),
            containers=tuple(self._member(ref, live[ref], ref in sandboxes) for ref in order),
            started_s=live[order[0]].started_s,
            counts=self._selector.counts(namespace, name),
            labels=labels,
            workload=workload_of(namespace, name, labels, self._image(order[0]), self._node_name),
            per_node=is_per_node(name, labels, node_name=self._node_name),
            service=is_service(name, labels),
        )

    def _member(self, ref: Ref, task: Task, sandbox: bool) -> Member:
        name = self._labels(ref).get(CONTAINER_NAME) or ref[1]
        return Member(ref[1], name, task.pid, task.status in (TaskStatus.PAUSED, TaskStatus.PAUSING), sandbox)

    def _labels(self, ref: Ref) -> Mapping[str, str]:
        container = self._containers.get(ref)
        return (container.labels or {}) if container else {}

    def _image(self, ref: Ref) -> str:
        """Outside Kubernetes, where the name of a container means nothing; a sandbox's image is the same everywhere."""
        return "" if self._labels(ref).get(POD_NAME) else self._containers[ref].image

    def _publish(self, pods: dict[str, Pod]) -> None:
        # whole new objects, so that other threads never see one change under their hands
        self.pods = MappingProxyType(pods)
        self.count = sum(pod.counts for pod in pods.values())


def _aged(task: Task, known: Task | None) -> Task:
    """A listed task has no start time; keep the one from the event."""
    return replace(task, started_s=known.started_s) if known is not None and known.pid == task.pid else task
