"""Settings of everything that talks to Kubernetes. Read through the package, like all others."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from carico_agent.plugin_api.declare import Range


@dataclass(frozen=True)
class KubernetesSettings:
    """The node's number on its Node object, and as a resource that kube-scheduler counts by itself."""

    enabled: bool = False
    """true: publish with the Pod's own service account (in a cluster). A kubeconfig, below or given with
    --kubeconfig, switches this on by itself."""

    kubeconfig: str = ""
    """Kubeconfig with a token, a client certificate or an exec plugin. Empty: the Pod's own service account."""

    context: str = ""
    """Context of that kubeconfig. Empty: its current one."""

    resource: str = "carico.dev/pods"
    """Extended resource that Pods ask for, one each. Empty: publish annotations only; Pods that wait for the extender
    are then tried again by kube-scheduler's own timer only (1 to 5 minutes): a change of the resource wakes them."""

    lease_namespace: str = "carico"
    """Namespace of the placement Leases: in each a node offers places, and the leading extender says who is on the way
    before a lower number is published (deploy/base makes it). Agents and extenders must name the same one. Empty: no
    Leases; then only one extender may run."""

    min_interval_s: Annotated[float, Range(1.0, 300.0)] = 5.0
    """Least time between two writes of the Node [s], except that a fall is written at once. In clusters of more than
    350 nodes they are further apart (5,000: 71 s on the average)."""

    horizon: Literal["now", "lifetime"] | Annotated[float, Range(60.0, 604_800.0)] = "lifetime"
    """For how long the resource holds: "now" (no longer than this instant), "lifetime" (as long as the Pods that come
    here stay, a day at most, once a day was seen; "now" until then), or seconds between 60 and 604800."""

    heartbeat_s: Annotated[float, Range(5.0, 600.0)] = 60.0
    """Time between two heartbeats in the node's Lease [s]; without a Lease, between two writes of the Node."""

    ttl_s: Annotated[float, Range(10.0, 3600.0)] = 150.0
    """How long a heartbeat is valid for others [s]; at least twice heartbeat_s, so that one may get lost."""

    @property
    def horizon_s(self) -> float | None:
        """The horizon that was given in seconds; None: as long as the Pods that come here stay."""
        return None if isinstance(self.horizon, str) else float(self.horizon)


@dataclass(frozen=True)
class ExtenderSettings:
    """`carico extender`: a webhook through which kube-scheduler asks for nodes with room."""

    listen: str = "127.0.0.1:9750"
    """Address and port for kube-scheduler, /metrics, /healthz and /readyz."""

    admission_listen: str = ""
    """Address and port for the API server's question about bindings by others (deploy/admission/bindings.yaml), over
    TLS with tls_cert and tls_key. Empty: it is not asked."""

    admission_client_ca: str = ""
    """Certificates that the API server's one is checked against there (PEM file); it shows one where its
    --admission-control-config-file names a kubeconfig for webhooks."""

    admission_token_file: str = ""
    """A file with a secret of at least 16 letters or digits. The API server then asks at /admit/SECRET, which the
    webhook's configuration names (deploy/admission/bindings.yaml), and no other question is answered."""

    admission_anyone: bool = False
    """Answer questions of any client about bindings. One of these three must be set: each question holds a place of a
    node for a while."""

    tls_ca: str = ""
    """Certificates that kube-scheduler's one is checked against (PEM file). Given, all three are needed: mTLS."""

    tls_cert: str = ""
    """This extender's certificate (PEM file)."""

    tls_key: str = ""
    """Key of it (PEM file)."""

    allow_plaintext: bool = False
    """Listen without TLS on addresses other than loopback. Anyone who can connect may then bind Pods."""

    bind_users: tuple[int, ...] = ()
    """Users (UIDs) besides root and the extender's own who may bind Pods where it listens on loopback without TLS:
    kube-scheduler's, if it runs as neither. Every user of the machine can connect there."""

    bound_within_s: Annotated[float, Range(5.0, 300.0)] = 15.0
    """A Pod that was placed on a node is seen bound within this [s], or its place is free again. Longer than a binding
    takes (4 s at most) and the watch lags. When the leading extender was killed, the next one places Pods after this
    long and 8 s more, so that none of them can be on its way."""

    max_nodes: Annotated[int, Range(0, 100_000)] = 100
    """Nodes that are handed back to kube-scheduler at most: those with the best scores. It scores each of them, too,
    and by itself looks at a part of a large cluster only. Pods with preferences of their own (preferred affinity,
    spread over a topology) get all nodes with room. 0: all nodes, always."""

    kueue: bool = False
    """Answer Kueue's admission checks with the controller name carico.dev/room: a Workload is admitted when all of its
    Pods fit by measured room (deploy/kueue)."""

    taint_full_nodes: bool = False
    """Taint nodes without room with carico.dev/full:PreferNoSchedule, for Pods that do not ask for the resource
    (deploy/taints)."""

    taint_after_s: Annotated[float, Range(1.0, 3600.0)] = 60.0
    """A node has been full for this long when it is tainted. It has had room for two Pods for half of this when the
    taint goes [s]."""

    policy: str = "pod-capacity"
    """Which policy filters and scores nodes; `carico extender --policies` lists them with their settings. Each has its
    own table below this one: [extender.policies.NAME]."""

    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The policies' own settings, one table each, checked against what the policy declares."""
