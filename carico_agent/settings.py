"""Every setting of carico: declared, explained and bounded in this package, and nowhere else.

`config.example.toml` is printed from it (`carico print-config`, a test compares) and shows what people change; `carico
print-config PRODUCT` prints all settings of a product. `load` accepts nothing that is not declared: all errors come at
once, each with its path and a suggestion.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_type_hints

from carico_agent.burst.settings import BurstRegistrySettings, BurstSettings, BurstTargetSettings
from carico_agent.federation.settings import AggregatorSettings, FederationSettings
from carico_agent.lib.declare import BadSettings, build, build_rest, example_table, suggest
from carico_agent.lib.kube_settings import ExtenderSettings, KubernetesSettings
from carico_agent.lib.net.address import BadAddress, is_loopback, split
from carico_agent.lib.page.settings import ClusterPageSettings, PageSettings, cluster_page_errors, page_errors
from carico_agent.node.settings.access import BudgetSettings, ClientsSettings, ListenSettings
from carico_agent.node.settings.node import (
    RESOURCES,
    ContainerdSettings,
    ModelSettings,
    NodeSettings,
    PodsSettings,
    ProcessesSettings,
    ReservationsSettings,
    SamplingSettings,
    SocketSettings,
)
from carico_agent.node.settings.plugins import PluginsSettings
from carico_agent.plane.settings import PlaneSettings, plane_errors
from carico_agent.plugin_api.declare import Range
from carico_agent.progress.settings import ProgressSettings

__all__ = [
    "AggregatorSettings",
    "BadSettings",
    "BudgetSettings",
    "BurstRegistrySettings",
    "BurstSettings",
    "BurstTargetSettings",
    "ClientsSettings",
    "ClusterPageSettings",
    "ContainerdSettings",
    "ExtenderSettings",
    "FederationSettings",
    "KubernetesSettings",
    "ListenSettings",
    "ModelSettings",
    "NodeSettings",
    "PageSettings",
    "PlaneSettings",
    "PluginsSettings",
    "PodsSettings",
    "ProcessesSettings",
    "ProgressSettings",
    "Range",
    "ReservationsSettings",
    "SamplingSettings",
    "Settings",
    "SocketSettings",
    "build",
    "example",
    "example_of",
    "load",
    "override",
    "parse",
]


def runtime_dir() -> Path:
    """Where sockets go: /run/carico for root and services, the user's own runtime folder otherwise."""
    if given := os.environ.get("RUNTIME_DIRECTORY"):
        return Path(given.split(":")[0])
    if os.geteuid() == 0:
        return Path("/run/carico")
    base = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/carico-{os.geteuid()}"
    return Path(base) / "carico" if os.environ.get("XDG_RUNTIME_DIR") else Path(base)


def state_dir() -> Path:
    """What must survive a restart: /var/lib/carico for root and services, the user's own state folder otherwise."""
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    if os.geteuid() == 0:
        return Path("/var/lib/carico")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "carico"


CARICO_CHURN_S = 0.5
"""HALT_S of the core's estimators, written down again so that reading a configuration does not load numpy."""


@dataclass(frozen=True)
class Settings:
    """The whole configuration, one field per TOML table."""

    node: NodeSettings = field(default_factory=NodeSettings)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    containerd: ContainerdSettings = field(default_factory=ContainerdSettings)
    pods: PodsSettings = field(default_factory=PodsSettings)
    processes: ProcessesSettings = field(default_factory=ProcessesSettings)
    socket: SocketSettings = field(default_factory=SocketSettings)
    progress: ProgressSettings = field(default_factory=ProgressSettings)
    listen: ListenSettings = field(default_factory=ListenSettings)
    page: PageSettings = field(default_factory=PageSettings)
    cluster_page: ClusterPageSettings = field(default_factory=ClusterPageSettings)
    clients: ClientsSettings = field(default_factory=ClientsSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    federation: FederationSettings = field(default_factory=FederationSettings)
    aggregator: AggregatorSettings = field(default_factory=AggregatorSettings)
    reservations: ReservationsSettings = field(default_factory=ReservationsSettings)
    plane: PlaneSettings = field(default_factory=PlaneSettings)
    plugins: PluginsSettings = field(default_factory=PluginsSettings)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    extender: ExtenderSettings = field(default_factory=ExtenderSettings)
    burst: BurstSettings = field(default_factory=BurstSettings)

    @property
    def churn_s(self) -> float:
        """How long usage says nothing after a container came or went [s]."""
        return min(self.pods.churn_s, CARICO_CHURN_S) if self.model.method == "carico" else self.pods.churn_s

    @property
    def state_path(self) -> Path:
        return Path(self.node.state) if self.node.state else state_dir()

    @property
    def socket_path(self) -> Path:
        return Path(self.socket.path) if self.socket.path else runtime_dir() / "agent.sock"

    @property
    def progress_path(self) -> Path:
        if self.progress.path:
            return Path(self.progress.path)
        own = self.socket_path
        # Two agents with sockets in one folder would take each other's socket for jobs.
        folder = "progress" if own.name == "agent.sock" else f"{own.name}.progress"
        return own.parent / folder / "progress.sock"

    @property
    def journal_path(self) -> Path:
        return Path(self.plugins.journal) if self.plugins.journal else self.state_path / "journal"


def load(path: str | os.PathLike[str]) -> Settings:
    """Settings from a TOML file; raises BadSettings with every error in it."""
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise BadSettings([f"{path}: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings([f"{path}: not TOML: {error}"]) from error
    return parse(table)


def parse(table: Mapping[str, Any]) -> Settings:
    """Settings from a parsed TOML document."""
    settings, errors = build_rest(Settings, table)
    broken = {error.partition(":")[0].partition(".")[0] for error in errors}
    errors += _value_errors(settings)
    # a default in the place of a broken value would make a relation look wrong that is right
    errors += [error for error in _cross_checks(settings) if error.partition(":")[0].partition(".")[0] not in broken]
    if errors:
        raise BadSettings(errors)
    return cast(Settings, settings)


def override(settings: Settings, section: str, **values: Any) -> Settings:
    """A copy with some values of one section replaced; None means "not given"."""
    given = {key: value for key, value in values.items() if value is not None}
    return replace(settings, **{section: replace(getattr(settings, section), **given)}) if given else settings


def _value_errors(settings: Settings) -> list[str]:
    """Of values alone, whatever stands beside them."""
    errors = []
    for table in ("limits", "prior_cost"):
        for name, value in getattr(settings.model, table).items():
            if name not in RESOURCES:
                errors.append(f"model.{table}.{name}: unknown resource{suggest(name, RESOURCES)}")
            elif not 0 < value <= 1:
                errors.append(f"model.{table}.{name}: {value} is not in (0, 1]")
    return errors + plane_errors(settings.plane)


def _cross_checks(settings: Settings) -> list[str]:
    """Of values that must go together."""
    errors = []
    writes = settings.kubernetes
    if not writes.min_interval_s <= writes.heartbeat_s <= writes.ttl_s / 2:
        errors.append("kubernetes: min_interval_s <= heartbeat_s <= ttl_s / 2 is needed: one write may get lost")
    tls = (settings.extender.tls_ca, settings.extender.tls_cert, settings.extender.tls_key)
    if any(tls) and not all(tls):
        errors.append("extender: tls_ca, tls_cert and tls_key are needed together")
    errors += settings.model.without_effect() + _unused_by_method(settings)
    errors += page_errors(settings.page, "page") + cluster_page_errors(settings.cluster_page)
    return errors + _listen_errors(settings.listen)


def _unused_by_method(settings: Settings) -> list[str]:
    """Settings of other sections that change nothing with the method of [model]."""
    if settings.model.method == "measured":
        if settings.federation.weight != FederationSettings.weight:
            return ['federation.weight: changes nothing with model.method = "measured": nodes share costs, not units']
    elif settings.pods.measure_period_s != PodsSettings.measure_period_s:
        return ['pods.measure_period_s: changes nothing with model.method = "carico": it measures no Pods']
    return []


def _listen_errors(listen: ListenSettings) -> list[str]:
    if not listen.address:
        return []
    try:
        host, _ = split(listen.address)
    except BadAddress:
        return [f"listen.address: {listen.address!r} is not host:port"]
    if bool(listen.tls_cert) != bool(listen.tls_key) or (listen.tls_ca and not listen.tls_cert):
        return ["listen.tls_cert, listen.tls_key: both are needed for TLS"]
    if not listen.tls_cert and not is_loopback(host):
        return [f"listen.address: {host} is not loopback; anyone could read along: give listen.tls_cert and tls_key"]
    return []


PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "agent": (
        "node",
        "sampling",
        "model",
        "containerd",
        "pods",
        "processes",
        "socket",
        "listen",
        "page",
        "clients",
        "budget",
        "reservations",
        "kubernetes",
        "plugins",
        "progress",
        "federation",
    ),
    "aggregator": ("aggregator",),
    "extender": ("extender", "cluster_page"),
    "plane": ("plane",),
    "burst": ("burst",),
}
"""Product → its sections."""

OFTEN_CHANGED: Mapping[str, tuple[str, ...]] = {
    "node": ("name", "root"),
    "sampling": ("io", "network"),
    "model": ("method", "service_cpu_limit", "limits", "max_pods"),
    "containerd": ("socket",),
    "pods": ("skip_namespaces", "skip_names"),
    "processes": ("units", "commands"),
    "socket": ("group", "status_file"),
    "page": ("listen", "tls_cert", "tls_key", "token_file"),
    "kubernetes": ("enabled", "kubeconfig", "horizon"),
    "plugins": ("enabled", "dry_run"),
    "federation": ("aggregators", "tls_ca", "tls_cert", "tls_key"),
    "aggregator": ("listen", "peers", "state", "tls_ca", "tls_cert", "tls_key"),
    "extender": ("listen", "tls_ca", "tls_cert", "tls_key", "policy"),
    "cluster_page": ("listen", "plane", "burst"),
    "plane": ("seats", "listen"),
    "burst": ("namespaces", "selector", "prices"),
}
"""Section → the settings that people change: what config.example.toml shows."""


def example() -> str:
    """The settings that people change, as commented TOML with their defaults: config.example.toml."""
    blocks = [
        "# carico configuration: the settings that people change, with their defaults; delete what you do not change.\n"
        "# Printed by `carico print-config`; `carico print-config PRODUCT` prints all settings of a product.\n"
        "# Checked by `carico check-config FILE`.\n"
    ]
    hints = get_type_hints(Settings)
    for product, sections in PRODUCTS.items():
        shown = [example_table(name, hints[name], OFTEN_CHANGED[name]) for name in sections if name in OFTEN_CHANGED]
        blocks.append("\n".join([f"# ---- carico {product}", *shown]))
    return "\n".join(blocks)


def example_of(*products: str) -> str:
    """All settings of these products, as commented TOML with their defaults."""
    blocks = [
        f"# All settings of carico {', '.join(products)}. Every value below is the default; delete what you do not "
        "change.\n# Checked by `carico check-config FILE`.\n"
    ]
    hints = get_type_hints(Settings)
    return "\n".join([*blocks, *(example_table(name, hints[name]) for one in products for name in PRODUCTS[one])])
