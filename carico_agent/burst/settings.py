"""Settings of `carico burst`. Read through the package, like all others."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from carico_agent.plugin_api.declare import Range


@dataclass(frozen=True)
class BurstRegistrySettings:
    """Where trained models are: [burst.registry]. The service takes its own credentials from its environment
    (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)."""

    url: str = ""
    """s3://BUCKET/PREFIX, or file:///FOLDER for a folder that all nodes mount. Empty: Jobs with models stay at home."""

    endpoint: str = ""
    """Address of an S3-compatible store. Empty: Amazon's of `region`."""

    region: str = ""
    """Region of the bucket, as in the prices: what leaves it costs egress."""

    secret: str = ""
    """Secret in the Jobs' namespace with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for the steps. Empty: none."""

    image: str = "carico:0.1.0"
    """Image of the steps that fetch and publish: Python and this package."""

    node_cache: str = ""
    """Folder of a node in which fetched models are kept for other Pods (a hostPath; the target must offer it in
    host_paths). Empty: no cache."""


@dataclass(frozen=True)
class BurstSettings:
    """`carico burst`: Jobs that do not fit at home run at a target, exactly once."""

    listen: str = "127.0.0.1:9760"
    """Address and port of /metrics, /healthz, /readyz and /v1/burst; loopback only."""

    kubeconfig: str = ""
    """Kubeconfig of the home cluster. Empty: the Pod's own service account."""

    context: str = ""
    """Context of that kubeconfig. Empty: its current one."""

    namespaces: tuple[str, ...] = ()
    """Namespaces whose Jobs may move. Empty: all; then burst needs its rights in all of them, on both sides."""

    selector: str = "carico.dev/burst=yes"
    """Label selector of Jobs that may move."""

    engine: Literal["jobs", "multikueue"] = "jobs"
    """jobs: carico moves them. multikueue: Kueue does, and carico names the clusters (status.nominatedClusterNames)."""

    policy: Literal["least-cost", "hcs"] = "least-cost"
    """least-cost: price, egress and time. hcs: the cheapest hourly price and one node at a time, for comparison."""

    unschedulable_s: Annotated[float, Range(0.0, 3600.0)] = 30.0
    """A Job is overflow once all its Pods have been unschedulable for this long [s] and no node has room."""

    period_s: Annotated[float, Range(0.5, 60.0)] = 5.0
    """Time between two rounds of planning [s]."""

    value_per_h: Annotated[float, Range(0.0, 1e6)] = 0.3
    """What an hour of a Job's waiting is worth, in the currency of the prices."""

    prices: str = ""
    """TOML file with [machines.REGION] MACHINE = price per hour and [egress_per_gb] REGION = price. A target whose
    machine has no price is not used."""

    models: tuple[str, ...] = ()
    """Command that prints the newest model of a name (its last argument) as JSON {url, region, gb}, for
    `carico.dev/data: NAME=latest`. Empty: such Jobs stay at home."""

    idle_delete_s: Annotated[float, Range(0.0, 86400.0)] = 60.0
    """Nodes of a target without Jobs for this long are removed, and the whole target when all are [s]."""

    keep_logs: bool = True
    """Keep the end of a moved Job's logs at home, in the ConfigMap JOB-burst-logs of its namespace. `carico burst logs`
    shows them."""

    lease_namespace: str = "carico-burst"
    """Namespace of the leader's Lease, of the provisioners' orders and of the key of the seal (deploy/burst)."""

    lease_s: Annotated[float, Range(4.0, 300.0)] = 15.0
    """A leader that does not renew its Lease for this long is replaced [s]."""

    registry: dict[str, Any] = field(default_factory=dict)
    """Where trained models are, a table [burst.registry] with url, endpoint, region, secret, image and node_cache."""

    targets: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The clusters to move to, one table each; `carico burst --help` lists what a table may have."""


@dataclass(frozen=True)
class BurstTargetSettings:
    """One target: [burst.targets.NAME]."""

    kubeconfig: str = ""
    """Kubeconfig of the target. Empty: its provisioner makes the cluster and hands one back."""

    context: str = ""
    """Context of that kubeconfig. Empty: its current one."""

    region: str = ""
    """Region, as in the prices and in `carico.dev/regions`."""

    machine: str = ""
    """Machine type of its nodes, as in the prices."""

    machines: tuple[str, ...] = ()
    """Machine types of which its provisioner may make nodes, as in the prices; for each Job the cheapest that takes it.
    Empty: `machine` only."""

    spot: bool = False
    """Its machines are spot machines: their spot_price holds, and the provisioner is told."""

    namespaces: dict[str, str] = field(default_factory=dict)
    """Namespace at home → at the target, where they differ."""

    host_paths: tuple[str, ...] = ()
    """Folders that every node of the target has; a Job with any other hostPath stays at home."""

    copy: tuple[Literal["configmaps", "secrets"], ...] = ()
    """Objects that burst copies to the target when a Job names them and the target lacks them: configmaps, secrets.
    They are deleted with the Job's copy. Empty: such a Job stays at home."""

    image_s: Annotated[float, Range(0.0, 3600.0)] = 20.0
    """Time to fetch an image on a new node [s]."""

    data_s_per_gb: Annotated[float, Range(0.0, 3600.0)] = 10.0
    """Time to fetch a GB from another region [s]."""

    autoscales_s: Annotated[float, Range(0.0, 86400.0)] = 0.0
    """The target makes nodes for waiting Pods by itself, in this time [s]. 0: it does not."""

    provisioner: tuple[str, ...] = ()
    """Command that makes and removes nodes (JSON on standard input and output). Empty: the target is as it is."""

    deadline_s: Annotated[float, Range(1.0, 7200.0)] = 600.0
    """A provisioner that has not answered by then is killed [s]."""

    boot_s: Annotated[float, Range(0.0, 7200.0)] = 300.0
    """From the order of a node to its first Pod [s]."""

    max_nodes: Annotated[int, Range(0, 10_000)] = 4
    """Nodes the provisioner may be asked for."""

    min_nodes: Annotated[int, Range(0, 10_000)] = 0
    """Nodes that the provisioner keeps although no Job needs them, so that the first Jobs do not wait for a boot."""

    node_cpu: Annotated[float, Range(0.0, 10_000.0)] = 16.0
    """Allocatable CPUs of a new node."""

    node_memory_gb: Annotated[float, Range(0.0, 100_000.0)] = 16.0
    """Allocatable memory of a new node [GB]."""

    node_pods: Annotated[int, Range(1, 10_000)] = 110
    """Pods a new node takes."""
