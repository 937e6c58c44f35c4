"""The catalogue: what machines and traffic cost by region, and what a node of each machine has before it exists.

[machines.us-east-1]
"c5.4xlarge" = 0.68                      # a price alone: the target's node_cpu, node_memory_gb and node_pods hold

[machines.us-east-1."g5.xlarge"]
price = 1.006
spot_price = 0.42                        # used by targets with spot = true
cpu = 3.9                                # allocatable, not the machine's own
memory_gb = 14.5
resources = { "nvidia.com/gpu" = 1 }
labels = { accelerator = "a10g" }
taints = ["nvidia.com/gpu=present:NoSchedule"]
arch = "amd64"
zones = ["us-east-1a", "us-east-1b"]

[egress_per_gb]
us-east-1 = 0.09
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any

from carico_agent.burst.overflow import NodeRoom
from carico_agent.lib.declare import BadSettings, build
from carico_agent.lib.kube.filters.pod_rules import NodeTraits, Taint
from carico_agent.plugin_api.declare import Range

ARCH, INSTANCE, REGION, ZONE = (
    "kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
"""Labels that every cloud's nodes have."""


class BadPrices(ValueError):
    """The file of prices cannot be used."""


@dataclass(frozen=True)
class MachineType:
    """One row of the catalogue. Amounts are what a node of it lets Pods have (allocatable)."""

    price: Annotated[float, Range(0.0, 1e6)] = 0.0
    """Price per hour."""

    spot_price: Annotated[float, Range(0.0, 1e6)] = 0.0
    """Price per hour of a spot machine. 0: it is not offered."""

    cpu: Annotated[float, Range(0.0, 10_000.0)] = 0.0
    """CPUs. 0: the target's node_cpu."""

    memory_gb: Annotated[float, Range(0.0, 100_000.0)] = 0.0
    """Memory [GB]. 0: the target's node_memory_gb."""

    pods: Annotated[int, Range(0, 10_000)] = 0
    """Pods that it takes. 0: the target's node_pods."""

    resources: dict[str, float] = field(default_factory=dict)
    """Every other resource, by name: GPUs, ephemeral-storage, hugepages."""

    labels: dict[str, str] = field(default_factory=dict)
    """Labels of its nodes, beside those that every cloud sets."""

    taints: tuple[str, ...] = ()
    """Taints of its nodes, as KEY=VALUE:EFFECT."""

    arch: str = "amd64"
    """Architecture, as in the label kubernetes.io/arch."""

    zones: tuple[str, ...] = ()
    """Zones in which it can be had."""

    def paid_per_h(self, spot: bool) -> float | None:
        """None: it cannot be had so."""
        return (self.spot_price or None) if spot else self.price

    def node(self, name: str, region: str, otherwise: NodeRoom) -> NodeRoom:
        """A node of this machine as it will be; `otherwise`: for what the catalogue does not say."""
        labels = {ARCH: self.arch, INSTANCE: name, "kubernetes.io/os": "linux", **self.labels}
        labels |= {REGION: region} if region else {}
        labels |= {ZONE: self.zones[0]} if len(self.zones) == 1 else {}
        return NodeRoom(
            f"new {name}",
            self.cpu or otherwise.cpu,
            self.memory_gb * 1e9 or otherwise.memory,
            self.pods or otherwise.pods,
            others=dict(self.resources),
            traits=NodeTraits(labels, tuple(map(parse_taint, self.taints))),
        )


@dataclass(frozen=True)
class Prices:
    """What machines and traffic cost, by region."""

    machines: Mapping[str, Mapping[str, MachineType]] = field(default_factory=dict)
    """Region → name → machine."""
    egress_per_gb: Mapping[str, float] = field(default_factory=dict)
    """Region that the data leaves → price per GB; missing is 0."""

    def machine(self, region: str, name: str) -> MachineType | None:
        return self.machines.get(region, {}).get(name)


def parse_taint(text: str) -> Taint:
    """
    >>> parse_taint("gpu=present:NoSchedule"), parse_taint("spot:NoExecute")
    (Taint(key='gpu', value='present', effect='NoSchedule'), Taint(key='spot', value='', effect='NoExecute'))
    """
    pair, colon, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not colon or not key or effect not in ("NoSchedule", "NoExecute", "PreferNoSchedule"):
        raise ValueError(f"{text!r} is no taint KEY=VALUE:EFFECT")
    return Taint(key, value, effect)


def parse_prices(text: str) -> Prices:
    """The catalogue as TOML; raises BadPrices."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadPrices(f"not TOML: {error}") from error
    if unknown := set(table) - {"machines", "egress_per_gb"}:
        raise BadPrices(f"unknown: {', '.join(sorted(unknown))}; known are machines and egress_per_gb")
    machines, egress = table.get("machines", {}), table.get("egress_per_gb", {})
    for where, prices in {"machines": machines, "egress_per_gb": egress}.items():
        if not isinstance(prices, dict):
            raise BadPrices(f"{where}: {prices!r} is not a table of prices")
    for name, price in egress.items():
        _check_price(f"egress_per_gb.{name}", price)
    return Prices({region: _region(region, rows) for region, rows in machines.items()}, egress)


def _region(region: str, rows: Any) -> dict[str, MachineType]:
    if not isinstance(rows, dict):
        raise BadPrices(f"{region}: {rows!r} is not a table of prices")
    return {name: _machine(f"{region}.{name}", row) for name, row in rows.items()}


def _machine(where: str, row: Any) -> MachineType:
    if not isinstance(row, dict):
        _check_price(where, row)
        return MachineType(float(row))
    if "price" not in row:
        raise BadPrices(f"{where}: has no price")
    try:
        made: MachineType = build(MachineType, row, where)
        for taint in made.taints:
            parse_taint(taint)
    except BadSettings as bad:
        raise BadPrices("; ".join(bad.errors)) from bad
    except ValueError as error:
        raise BadPrices(f"{where}: {error}") from error
    return made


def _check_price(where: str, price: Any) -> None:
    if not isinstance(price, int | float) or isinstance(price, bool) or not 0 <= price < inf:
        raise BadPrices(f"{where}: {price!r} is not a price")
