"""Settings of the reports that jobs send."""

from dataclasses import dataclass
from typing import Annotated

from carico_agent.plugin_api.declare import Range


@dataclass(frozen=True)
class ProgressSettings:
    """Jobs report how far they are, on a socket of their own that offers nothing else (docs/progress.md)."""

    enabled: bool = True
    """false: no such socket."""

    path: str = ""
    """Empty: progress/progress.sock beside the agent's socket (NAME.progress/progress.sock where that is called NAME,
    not agent.sock). Alone in its folder, which Pods may mount: the agent's own socket trusts root, and many containers
    are root."""

    processes: bool = True
    """Processes outside of Pods may report, too: on a laptop or a batch host. They are listed on their own and are no
    part of the work that the node publishes. The limits of a Pod hold for all of one user."""

    kubelet_pods: str = "/var/lib/kubelet/pods"
    """The kubelet's folder of Pods, below `[node] root`. Pods with an emptyDir named carico-progress may write their
    reports to the file report.json in it, and need no socket. Empty: the agent reads no such files."""

    reports_per_s: Annotated[float, Range(0.1, 1000.0)] = 3.0
    """Reports of all jobs that are asked for. With more jobs than that, each is asked to report less often than once a
    second. One costs 0.5 to 0.9 ms, so that this is 0.15 to 0.27 % of a core."""

    pod_reports_per_s: Annotated[float, Range(0.1, 1000.0)] = 5.0
    """Reports that one Pod may send. Beyond that the agent answers 429 to this Pod only."""

    pod_connections: Annotated[int, Range(1, 1000)] = 16
    """Connections of one Pod at once."""
