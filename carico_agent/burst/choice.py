"""Where a Job goes: the target of least cost, time included, among those its data and its owner allow. Pure.

cost = price · node-seconds / Jobs per node + egress · GB + value of time · (boot + image + data + run)

`hcs` is the rule of the thesis (4.2), for comparison: the cheapest hourly price, whatever else.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isfinite

from carico_agent.burst.catalogue import Prices
from carico_agent.burst.registry import MODEL_NAME

DATA, PRODUCES, REGIONS = "carico.dev/data", "carico.dev/produces", "carico.dev/regions"
MAX_NAMED = 32
"""Models and data that one Job names. Burst asks for each of them, for the Jobs of all users one after another."""


@dataclass(frozen=True)
class Data:
    """What a Job reads: `NAME=URL,REGION`, `NAME=URL,REGION,GB`, or `model=NAME@VERSION` of the registry."""

    name: str
    url: str
    region: str = ""
    gb: float = 1.0
    version: str = ""
    """Of a model of the registry; its url is empty until the registry is asked."""

    @property
    def model(self) -> bool:
        return bool(self.version)


@dataclass(frozen=True)
class TargetOffer:
    """What a target is to a Job now."""

    name: str
    region: str
    price_per_h: float | None
    places: int = 1
    """Jobs like this one per node."""
    ready_s: float = 0.0
    """Until there is room: 0 with a free node, else its boot [s]; inf: never."""
    image_s: float = 0.0
    data_s_per_gb: float = 0.0
    obstacle: str = ""
    """Why it cannot be used at all: not reachable, refuses this Job."""
    no_room: str = ""
    """Why neither its nodes nor new ones take this Job."""
    machine: str = ""
    """Of which machine a new node for this Job would be."""


@dataclass(frozen=True)
class JobNeeds:
    """What a Job will do and what it reads."""

    duration_s: float
    data: tuple[Data, ...] = ()
    regions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Option:
    """One target judged: its cost and time, or why not."""

    target: str
    cost: float = inf
    elsewhere_s: float = inf
    """Until the Job would start there."""
    why_not: str = ""
    machine: str = ""


def parse_data(text: str) -> tuple[Data, ...]:
    """
    >>> [(one.name, one.region, one.gb) for one in parse_data("churn=s3://models/churn,us-west-2,2.5; base=gs://b/x,eu")]
    [('churn', 'us-west-2', 2.5), ('base', 'eu', 1.0)]
    >>> [(one.name, one.version) for one in parse_data("model=arpu@latest")]
    [('arpu', 'latest')]
    """
    found = []
    for item in _items(DATA, text):
        name, equals, rest = item.partition("=")
        if name == "model" and "@" in rest:
            model, _, version = rest.partition("@")
            found.append(Data(_model_name(model, item), "", version=version))
            continue
        url, *more = rest.split(",")
        if url == "latest":
            _model_name(name, item)  # it becomes an argument of the operator's command
        if not equals or not name or not url or len(more) > 2:
            raise ValueError(f"{DATA}: {item!r} is not NAME=URL,REGION or NAME=URL,REGION,GB or model=NAME@VERSION")
        gb = float(more[1]) if len(more) == 2 else 1.0
        if not isfinite(gb) or gb < 0:
            raise ValueError(f"{DATA}: {item!r}: {gb} GB")
        found.append(Data(name, url, more[0] if more else "", gb))
    return tuple(found)


def parse_produces(text: str) -> tuple[str, ...]:
    """The models that a Job makes.

    >>> parse_produces("model=arpu; model=saved")
    ('arpu', 'saved')
    """
    found = []
    for item in _items(PRODUCES, text):
        what, equals, name = item.partition("=")
        if what != "model" or not equals:
            raise ValueError(f"{PRODUCES}: {item!r} is not model=NAME")
        found.append(_model_name(name, item))
    return tuple(found)


def _items(annotation: str, text: str) -> list[str]:
    items = [part for part in re.split(r"[;\s]+", text) if part]
    if len(items) > MAX_NAMED:
        raise ValueError(f"{annotation}: {len(items)} are named, at most {MAX_NAMED} may be")
    return items


def _model_name(name: str, item: str) -> str:
    if not MODEL_NAME.fullmatch(name):
        raise ValueError(
            f"{item!r}: {name!r} is no name of a model: small letters, digits, dashes and dots, at most 63"
        )
    return name


def judge(needs: JobNeeds, target: TargetOffer, prices: Prices, value_per_h: float) -> Option:
    """Cost and time of one target, or why it cannot be."""
    if target.obstacle:
        return Option(target.name, why_not=target.obstacle)
    if target.price_per_h is None:
        return Option(target.name, why_not="no price is known for it")
    if needs.regions and target.region not in needs.regions:
        return Option(target.name, why_not=f"region {target.region or '(none)'} is not allowed ({REGIONS})")
    if not isfinite(target.ready_s):
        return Option(target.name, why_not=target.no_room or "it has no room and cannot grow")
    away = [data for data in needs.data if data.region and data.region != target.region]
    egress = sum(prices.egress_per_gb.get(data.region, 0.0) * data.gb for data in away)
    elsewhere_s = target.ready_s + target.image_s + target.data_s_per_gb * sum(data.gb for data in away)
    machine = target.price_per_h * needs.duration_s / 3600 / max(1, target.places)
    cost = machine + egress + value_per_h * (elsewhere_s + needs.duration_s) / 3600
    return Option(target.name, cost, elsewhere_s, machine=target.machine)


def min_cost(needs: JobNeeds, targets: Iterable[TargetOffer], prices: Prices, value_per_h: float) -> list[Option]:
    """Every target, best first; those that cannot be come last with the reason.

    >>> fast, slow = TargetOffer("fast", "a", 2.0), TargetOffer("slow", "b", 0.5, ready_s=600.0)
    >>> [option.target for option in min_cost(JobNeeds(600.0), [slow, fast], Prices(), 3.0)]
    ['fast', 'slow']
    """
    options = [judge(needs, target, prices, value_per_h) for target in targets]
    return sorted(options, key=lambda option: (bool(option.why_not), option.cost))


def hcs(needs: JobNeeds, targets: Iterable[TargetOffer], prices: Prices, value_per_h: float) -> list[Option]:
    """The cheapest price per hour first, as the thesis chooses its region."""
    by_name = {target.name: target for target in targets}
    options = min_cost(needs, by_name.values(), prices, 0.0)
    return sorted(options, key=lambda o: (bool(o.why_not), by_name[o.target].price_per_h or inf))


POLICIES = {"least-cost": min_cost, "hcs": hcs}
