"""Settings of `carico plane`. Read through the package, like all others."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from carico_agent.plane.endpoints import BadEndpoint, parse_endpoint
from carico_agent.plugin_api.declare import Range

COMPONENTS = ("etcd", "kube-scheduler", "kube-controller-manager")
"""Whose metrics may be named; the API server's own are always read."""


@dataclass(frozen=True)
class PlaneSettings:
    """`carico plane`: how busy the control plane is, and how many requests its API server may execute at once."""

    seats: Literal["off", "recommend", "write"] = "recommend"
    """What the service does with what it computes. "write" keeps one PriorityLevelConfiguration, carico-reserve, that
    holds seats back; it is taken away on exit, by the next start, by `carico restore` and by `carico uninstall`."""

    period_s: Annotated[float, Range(1.0, 3600.0)] = 60.0
    """Time between two readings of the metrics [s], and the window the model looks at."""

    listen: str = "127.0.0.1:9765"
    """Address and port for /metrics, /healthz and /v1/plane, plain http. Empty: none."""

    allow_plaintext: bool = False
    """Listen on addresses other than loopback, too. Anyone who can connect may then read how busy the control plane is
    and who costs most; nothing can be changed there."""

    cores: Annotated[float, Range(0.0, 4096.0)] = 0.0
    """Cores of the machine that the control plane runs on. 0: as many as this machine has."""

    components: dict[str, str] = field(default_factory=dict)
    """Addresses of other components' metrics, like { etcd = "http://127.0.0.1:2381/metrics" }; known are etcd,
    kube-scheduler and kube-controller-manager. Over https the API server's credentials and authority are used; others
    follow the address, as in "https://127.0.0.1:10259/metrics,trust=loopback": ca=FILE, token=FILE, certificate=FILE
    and key=FILE, and trust=loopback for a certificate that a component on this machine has signed itself."""

    availability: Annotated[float, Range(0.0, 0.999999999)] = 0.999
    """Least share of the requests that shall not be rejected."""

    busy_ratio: Annotated[float, Range(0.0, 1.0)] = 0.7
    """While all components together use less than this share of the cores, nothing competes and no seats are
    recommended."""

    min_seats: Annotated[int, Range(1, 100_000)] = 16
    """Never fewer seats than this for all levels together. Each level keeps at least one in any case."""

    namespace: str = "carico"
    """Namespace of the Lease that decides between two instances."""


def plane_errors(settings: PlaneSettings) -> list[str]:
    """Of values that their type does not check."""
    return [
        f"plane.components.{name}: {why}" for name, text in settings.components.items() if (why := _wrong(name, text))
    ]


def _wrong(name: str, text: str) -> str:
    if name not in COMPONENTS:
        return f"{', '.join(COMPONENTS)} are known"
    try:
        parse_endpoint(text)
    except BadEndpoint as bad:
        return str(bad)
    return ""
