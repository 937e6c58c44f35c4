"""Settings of who may ask the agent, from where, and how often; and of what the agent may cost."""

from dataclasses import dataclass
from typing import Annotated

from carico_agent.plugin_api.declare import Range


@dataclass(frozen=True)
class ClientsSettings:
    """Limits per client of the local API, that is per user id (on TCP: per address or certificate). Root and the
    agent's own user have none."""

    connections: Annotated[int, Range(0, 100_000)] = 64
    """Connections at once; 0: any number."""

    requests_per_s: Annotated[float, Range(0.0, 1e6)] = 100.0
    """Requests per second, of which a second's worth may come at once; 0: any number."""

    reserved_pods: Annotated[int, Range(0, 1_000_000)] = 200
    """Pods of all its reservations together; 0: any number."""

    reserved_ratio: Annotated[float, Range(0.01, 1.0)] = 0.8
    """The part of all room that its reservations may take, so that others find some; one Pod always."""


@dataclass(frozen=True)
class ListenSettings:
    """The local API on TCP as well. No client is root there: every client may read, and only clients with a
    certificate may reserve."""

    address: str = ""
    """"host:port"; empty: none. Without TLS only a loopback address is taken."""

    tls_cert: str = ""
    """Certificate (PEM file)."""

    tls_key: str = ""
    """Key of it (PEM file)."""

    tls_ca: str = ""
    """Certificates that clients' certificates are checked against (PEM file). Empty: clients need none."""


@dataclass(frozen=True)
class BudgetSettings:
    """What the agent itself may cost. Above it, or while the node is under pressure, it samples 5, 2 or 1 times a
    second, and says so."""

    cpu_ratio: Annotated[float, Range(0.001, 1.0)] = 0.03
    """CPU time, as a share of one core."""

    resident_mb: Annotated[float, Range(32.0, 4096.0)] = 128.0
    """Resident memory [MB]."""

    pressure_ratio: Annotated[float, Range(0.1, 1.0)] = 0.98
    """Usage of memory at which the node is under pressure; missed ticks are the other sign of it."""

    calm_s: Annotated[float, Range(1.0, 3600.0)] = 60.0
    """All must be well for this long [s] before it samples faster again, a step at a time; twice as long after each
    relapse."""
