"""Settings of the node agent itself."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from carico_agent.plugin_api.declare import Range

RESOURCES = ("cpu", "memory", "io", "network")
"""All that can be sampled; the last two where [sampling] asks for them."""

METHODS = {
    "measured": ("resource-space",),
    "carico": ("paper-dual", "redenominated", "paper-joint", "paper-delta"),
}
"""Method → its estimators, the default first."""


@dataclass(frozen=True)
class NodeSettings:
    """Who this node is."""

    name: str = ""
    """Name under which this node publishes. Empty: the host name (in Kubernetes: $NODE_NAME)."""

    state: str = ""
    """Folder for what must survive a restart. Empty: /var/lib/carico for root and services, else
    $XDG_STATE_HOME/carico."""

    root: str = "/"
    """Folder under which proc/ and sys/ are found; in a container with the host mounted at /host: "/host"."""


@dataclass(frozen=True)
class SamplingSettings:
    """How the kernel is read."""

    period_s: Annotated[float, Range(0.02, 10.0)] = 0.1
    """Time between samples [s]. The filters are tuned for 0.1."""

    io: bool = False
    """Also sample disks (pressure and busy time) as a resource named "io"."""

    network: bool = False
    """Also sample the busiest physical link as a resource named "network"."""

    realtime: bool = True
    """Sample in the real-time class (SCHED_RR, lowest priority; only this thread), so that ticks come in time on an
    overloaded node (`make bench`, "lateness"). Needs CAP_SYS_NICE."""

    niceness: Annotated[int, Range(-20, 19)] = -10
    """Niceness of the sampling thread where it is not real time. Counts only against threads of the same cgroup or
    session. Below 0 needs CAP_SYS_NICE; without it the thread stays at 0."""

    def optional_signals(self) -> dict[str, bool]:
        """Signals that are read only if asked for, as arguments of telemetry's NodeReader."""
        return {"io": self.io, "network": self.network}


@dataclass(frozen=True)
class ModelSettings:
    """How usage becomes Pod-Capacity. The defaults are the ones measured in lab/."""

    method: Literal["measured", "carico"] = "measured"
    """measured: what each Pod uses decides. carico: the algorithm of *CARICO* as written, which knows the node's usage
    and the number of Pods; Capacity k and the workload's direction are published too (docs/paper.md)."""

    estimator: Literal["", "resource-space", "redenominated", "paper-dual", "paper-joint", "paper-delta"] = ""
    """What learns the cost of a Pod from the node's usage. Empty: resource-space with measured, paper-dual with carico;
    carico also has paper-joint and paper-delta (*CARICO*, 4.2.4) and redenominated."""

    cpu_limit: Annotated[float, Range(0.05, 2.0)] = 2.0
    """Runnable threads per core at which the CPU counts as full, on a node without services. At 2 its cores never idle,
    and work that only cares when it ends is done soonest."""

    service_cpu_limit: Annotated[float, Range(0.05, 2.0)] = 1.0
    """The same while a Pod of a Deployment or StatefulSet runs here. Such a Pod answers requests: docs/number.md says
    what each value does to their latency."""

    limits: dict[str, float] = field(default_factory=dict)
    """Usage at which a resource counts as full, per resource, in (0, 1]. Those not named: 1, but memory 0.85 with
    measured. `cpu`, a share of twice the cores, replaces both settings above."""

    prior_cost: dict[str, float] = field(default_factory=dict)
    """What one Pod is believed to use before any was seen, as a share of the node, per resource.
    Not named: cpu 1/(2 x cores), "one Pod keeps one core busy"; others unknown."""

    max_pods: Annotated[int, Range(1, 100_000)] = 110
    """Never claim room for more Pods than this in all; 110 is what a kubelet admits by default."""

    forget: Annotated[float, Range(0.001, 1.0)] = 0.03
    """Weight of the newest second in the model of recent usage; only with carico."""

    @property
    def chosen_estimator(self) -> str:
        return self.estimator or METHODS[self.method][0]

    def without_effect(self) -> list[str]:
        """What is set, but changes nothing with this method; each with the reason."""
        found = []
        if self.chosen_estimator not in METHODS[self.method]:
            other = next(method for method, names in METHODS.items() if self.estimator in names)
            found.append(
                f"model.estimator: {self.estimator} belongs to the method {other} and changes nothing with "
                f'method = "{self.method}"'
            )
        unused = {"measured": {"forget": "no model of recent usage is kept"}}
        unused["carico"] = {"service_cpu_limit": "it does not know which Pods are services; set cpu_limit"}
        for name, why in unused[self.method].items():
            if getattr(self, name) != getattr(ModelSettings, name):
                found.append(f'model.{name}: changes nothing with method = "{self.method}": {why}')
        return found


@dataclass(frozen=True)
class SocketSettings:
    """The local API: HTTP/1.1 and JSON over a unix socket."""

    path: str = ""
    """Empty: /run/carico/agent.sock for root and services, $XDG_RUNTIME_DIR/carico/agent.sock otherwise."""

    group: str = ""
    """Group that may connect (the socket has mode 0660). Empty: the agent's own group."""

    status_file: str = ""
    """Also keep the status in this file, replaced atomically once a second, for readers that want no socket."""

    ttl_s: Annotated[float, Range(1.0, 3600.0)] = 5.0
    """A published number is void when it is older than this [s]."""


@dataclass(frozen=True)
class ContainerdSettings:
    """Where events of containers come from. Without containerd Pods are found in the cgroup tree."""

    enabled: bool = True
    """false: never speak to containerd, look at the cgroup tree only (saves about 15 MB of memory)."""

    socket: str = ""
    """Path of containerd's socket. Empty: the usual places of containerd, k3s, RKE2, MicroK8s, k0s and Docker."""

    namespaces: tuple[str, ...] = ("k8s.io", "default", "moby")
    """containerd namespaces whose containers are Pods here: Kubernetes, plain ctr and nerdctl, Docker."""

    topics: tuple[str, ...] = (
        "/containers/",
        "/tasks/create",
        "/tasks/start",
        "/tasks/exit",
        "/tasks/delete",
        "/tasks/paused",
        "/tasks/resumed",
        "/tasks/oom",
    )
    """Beginnings of the event topics to subscribe to. All of these are needed for right counts but /tasks/oom;
    add "/tasks/exec-" to see execs in /v1/events (every exec probe of every Pod is two events more)."""

    resync_s: Annotated[float, Range(1.0, 86400.0)] = 300.0
    """Time between full listings [s] that confirm the events. A listing asks every shim once."""


@dataclass(frozen=True)
class PodsSettings:
    """Which Pods count, and how they are watched."""

    skip_namespaces: tuple[str, ...] = ()
    """Pods in these Kubernetes (or else containerd) namespaces do not count. Globs: "kube-*"."""

    skip_names: tuple[str, ...] = ()
    """Pods with these names do not count. Globs: "node-exporter-*"."""

    churn_s: Annotated[float, Range(0.0, 60.0)] = 1.5
    """For this long [s] after a container was created, started or ended, usage says nothing about the cost of Pods.
    With `[model] method = "carico"` at most 0.5."""

    measure: bool = True
    """Measure every Pod one by one, from its cgroup. Without it all Pods count as alike, which is right only on nodes
    that run one workload."""

    measure_period_s: Annotated[float, Range(1.0, 60.0)] = 5.0
    """Time between two measurements of one Pod [s]; some Pods are read in each tick. 110 Pods every 5 s cost about
    0.1 % of a core."""

    history: bool = True
    """Read each container once a minute and remember its usage for some days, for `carico recommend`."""

    usage: bool = True
    """Read CPU, throttling, memory and pressure of every Pod from its cgroup, while a plugin or a client looks."""

    usage_period_s: Annotated[float, Range(0.5, 60.0)] = 1.0
    """Readers get values at most this old [s]. A reading costs about 40 microseconds per Pod."""


@dataclass(frozen=True)
class ProcessesSettings:
    """Processes as Pods, for machines without containers. With one of these, the agent ignores containers."""

    units: tuple[str, ...] = ()
    """systemd units that are a Pod each, running services or scopes. Globs: "nginx.service", "worker@*"."""

    commands: tuple[str, ...] = ()
    """Commands that are a Pod each, with all they have started. Globs, compared with the command's name and with its
    whole command line: "postgres", "python3 train.py*". Looked for every 10 s."""


@dataclass(frozen=True)
class ReservationsSettings:
    """Room that local schedulers hold for Pods which are on their way."""

    most: Annotated[int, Range(0, 100_000)] = 1000
    """How many reservations may be held at once; 0 switches them off."""

    max_ttl_s: Annotated[float, Range(1.0, 86_400.0)] = 600.0
    """No reservation lasts longer than this [s]."""
