"""One round of thinking: which Jobs move where, why the others stay, how many nodes each target should have. Pure.

The service carries the answer out, `carico burst plan` prints it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from carico_agent.burst.catalogue import Prices
from carico_agent.burst.choice import POLICIES, JobNeeds, Option, TargetOffer
from carico_agent.burst.cluster import take
from carico_agent.burst.overflow import ROUNDING, NodeRoom, Waiting, fitting, stays, why_none
from carico_agent.burst.sizing import ExpectedWork, NodeOffer, nodes_to_add
from carico_agent.burst.waits import starts


@dataclass(frozen=True)
class Candidate:
    """A Job that waits at home, in order of its creation."""

    waiting: Waiting
    needs: JobNeeds
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Target → why it does not take this Job."""


@dataclass(frozen=True)
class Growth:
    """How a target can grow: by whole nodes of one machine, through its provisioner."""

    node: NodeRoom
    """What a new node has."""
    boot_s: float
    more: int
    """Nodes that may still be added."""
    coming: Sequence[float] = ()
    """In how many seconds each ordered node is there."""
    machine: str = ""
    price_per_h: float | None = None
    """Of a node. None: the target's."""


@dataclass(frozen=True)
class TargetState:
    """One target now."""

    name: str
    region: str = ""
    price_per_h: float | None = None
    rooms: Sequence[NodeRoom] = ()
    left_s: Sequence[float] = ()
    """How long each Job that runs there will still run."""
    growths: Sequence[Growth] = ()
    """One for each machine that it may be given."""
    autoscales_s: float | None = None
    """It makes nodes by itself for Pods that wait, in this time."""
    image_s: float = 0.0
    data_s_per_gb: float = 0.0
    obstacle: str = ""


@dataclass(frozen=True)
class BurstPolicy:
    """What the operator wants."""

    name: str = "least-cost"
    unschedulable_s: float = 30.0
    value_per_h: float = 0.3
    prices: Prices = field(default_factory=Prices)


@dataclass
class Plan:
    """Job → target, Job → why it stays (and what the targets were judged), target → nodes to add."""

    moves: dict[tuple[str, str], str] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    options: dict[tuple[str, str], list[Option]] = field(default_factory=dict)
    add: dict[str, int] = field(default_factory=dict)
    machines: dict[str, dict[str, int]] = field(default_factory=dict)
    """Target → machine → nodes to add."""
    pending: dict[str, list[Waiting]] = field(default_factory=dict)
    """Target → the Jobs that wait for a node there."""


def plan(
    candidates: Sequence[Candidate],
    home: Sequence[NodeRoom],
    home_left_s: Sequence[float],
    targets: Sequence[TargetState],
    policy: BurstPolicy,
    expected: Sequence[tuple[float, float]] = (),
    home_empty: Sequence[NodeRoom] | None = None,
) -> Plan:
    """`expected`: (in how many seconds, duration) of Jobs that will come. `home_empty`: the nodes of home as if no Pod
    were on them. A Job that fits on none of them waits at home in vain, however soon others end."""
    made = Plan()
    rooms = {target.name: list(target.rooms) for target in targets}
    waits_s = _waits(candidates, home_left_s, home_empty)
    wanted: dict[tuple[str, str], list[Candidate]] = {}
    for candidate, wait_s in zip(candidates, waits_s, strict=True):
        key = candidate.waiting.key
        if why := stays(candidate.waiting, home, policy.unschedulable_s):
            made.reasons[key] = why
            continue
        options = _options(candidate, targets, rooms, policy)
        made.options[key] = options
        best = options[0] if options else Option("", why_not="there is no target")
        if best.why_not:
            made.reasons[key] = "; ".join(f"{option.target}: {option.why_not}" for option in options) or best.why_not
        elif policy.name != "hcs" and wait_s <= best.elsewhere_s:
            made.reasons[key] = f"starts at home in about {wait_s:.0f} s, at {best.target} in {best.elsewhere_s:.0f} s"
        else:
            _place(candidate, best, targets, rooms, made, wanted)
    both = zip(candidates, waits_s, strict=True)
    never = frozenset(one.waiting.key for one, wait_s in both if wait_s == inf)
    for target in targets:
        for growth in target.growths:
            if waiting := wanted.get((target.name, growth.machine)):
                more = _all_nodes(waiting, never, home_left_s, target, growth, policy, expected)
                made.machines.setdefault(target.name, {})[growth.machine] = more
                made.add[target.name] = made.add.get(target.name, 0) + more
    return made


def _waits(
    candidates: Sequence[Candidate], home_left_s: Sequence[float], home_empty: Sequence[NodeRoom] | None
) -> list[float]:
    """When each Job would start at home."""
    possible = [home_empty is None or _ever(one.waiting, home_empty) for one in candidates]
    queue = [(0.0, one.needs.duration_s) for one, may in zip(candidates, possible, strict=True) if may]
    begun = iter(starts(home_left_s, queue))
    return [next(begun) if may else inf for may in possible]


def _ever(waiting: Waiting, nodes: Sequence[NodeRoom]) -> bool:
    asked = waiting.here or waiting.asked
    return next(fitting(nodes, waiting.workload, asked), None) is not None


def _options(
    candidate: Candidate, targets: Sequence[TargetState], rooms: dict[str, list[NodeRoom]], policy: BurstPolicy
) -> list[Option]:
    offers = [_offer(candidate, target, rooms[target.name]) for target in targets]
    return POLICIES[policy.name](candidate.needs, offers, policy.prices, policy.value_per_h)


def _offer(candidate: Candidate, target: TargetState, rooms: list[NodeRoom]) -> TargetOffer:
    waiting = candidate.waiting
    ready_s, no_room = (0.0, "") if _fits(rooms, waiting) else (inf, _no_room(waiting, target, rooms))
    growth = _growth_for(waiting, target)
    if ready_s and growth is not None:
        ready_s = min(growth.coming) if growth.coming else growth.boot_s
    if target.autoscales_s is not None:
        ready_s = min(ready_s, target.autoscales_s)
    price_per_h = target.price_per_h if growth is None or growth.price_per_h is None else growth.price_per_h
    return TargetOffer(
        target.name,
        target.region,
        price_per_h,
        1 if growth is None else max(1, places_of(growth.node, waiting)),
        ready_s,
        target.image_s,
        target.data_s_per_gb,
        target.obstacle or candidate.refusals.get(target.name, ""),
        no_room,
        growth.machine if growth is not None else "",
    )


def _growth_for(waiting: Waiting, target: TargetState) -> Growth | None:
    """The machine whose nodes take this Job for the least money, of those of which nodes come or may be ordered."""
    able = [one for one in target.growths if (one.more or one.coming) and places_of(one.node, waiting)]
    price = [one.price_per_h if one.price_per_h is not None else target.price_per_h or 0.0 for one in able]
    ranked = sorted(range(len(able)), key=lambda n: (price[n] / places_of(able[n].node, waiting), price[n]))
    return able[ranked[0]] if ranked else None


def _no_room(waiting: Waiting, target: TargetState, rooms: list[NodeRoom]) -> str:
    """Why neither the nodes of a target nor new ones take this Job."""
    words = [f"it has no room ({why_none(rooms, waiting.workload, waiting.asked)})" if rooms else "it has no room"]
    for growth in target.growths:
        if why := growth.node.why_not(waiting.workload, waiting.asked):
            words.append(f"{growth.node.name}: {why}")
        elif not growth.more:
            words.append(f"it may have no more nodes {growth.machine}".rstrip())
    return "; ".join(words if target.growths else [*words, "it cannot grow"])


def _fits(rooms: list[NodeRoom], waiting: Waiting) -> bool:
    trial = list(rooms)
    return all(take(trial, waiting.workload, waiting.asked) for _ in range(waiting.pods))


def places_of(node: NodeRoom, waiting: Waiting) -> int:
    """How many Jobs like this one a node takes.

    >>> from carico_agent.burst.overflow import Asked
    >>> places_of(NodeRoom("new", cpu=16.0, memory=16e9), Waiting(("d", "a"), "k", Asked(2.0, 2.5e9), 40.0))
    6
    """
    if node.why_not(waiting.workload, waiting.asked):
        return 0
    amounts = [node.free(name) / amount for name, amount in waiting.asked.amounts()]
    return int(min([*amounts, node.pods]) / max(1, waiting.pods) + ROUNDING)


def _place(
    candidate: Candidate,
    best: Option,
    targets: Sequence[TargetState],
    rooms: dict[str, list[NodeRoom]],
    made: Plan,
    wanted: dict[tuple[str, str], list[Candidate]],
) -> None:
    """Move it where there is room; where there will be, it waits at home, which may still take it."""
    waiting, target = candidate.waiting, next(one for one in targets if one.name == best.target)
    if _fits(rooms[target.name], waiting):
        for _ in range(waiting.pods):
            take(rooms[target.name], waiting.workload, waiting.asked)
        made.moves[waiting.key] = target.name
    elif target.autoscales_s is not None:
        made.moves[waiting.key] = target.name
    else:
        wanted.setdefault((target.name, best.machine), []).append(candidate)
        made.pending.setdefault(target.name, []).append(waiting)
        made.reasons[waiting.key] = f"waits for a node at {target.name}"


def _all_nodes(
    waiting: Sequence[Candidate],
    never: frozenset[tuple[str, str]],
    home_left_s: Sequence[float],
    target: TargetState,
    growth: Growth,
    policy: BurstPolicy,
    expected: Sequence[tuple[float, float]],
) -> int:
    """`never`: Jobs that cannot start at home. No place at home counts for them, nor one at the target, whose nodes may
    be other machines: only nodes of this one do."""
    stuck = [one for one in waiting if one.waiting.key in never]
    others = [one for one in waiting if one.waiting.key not in never]
    first = _nodes(stuck, (), replace(target, left_s=()), growth, policy, ()) if stuck else 0
    if not others:
        return first
    left = replace(growth, more=growth.more - first, coming=[*growth.coming, *([growth.boot_s] * first)])
    return first + _nodes(others, home_left_s, target, left, policy, expected)


def _nodes(
    waiting: Sequence[Candidate],
    home_left_s: Sequence[float],
    target: TargetState,
    growth: Growth,
    policy: BurstPolicy,
    expected: Sequence[tuple[float, float]],
) -> int:
    places = max(1, min(places_of(growth.node, one.waiting) for one in waiting))
    coming = [in_s for in_s in growth.coming for _ in range(places)]
    if policy.name == "hcs":
        return 0 if growth.coming else min(1, growth.more)
    jobs = [(0.0, one.needs.duration_s) for one in waiting]
    demand = ExpectedWork(sorted([*jobs, *expected]), [*home_left_s, *target.left_s, *coming])
    if not demand.free_s:
        demand = replace(demand, free_s=[growth.boot_s] * places)
        return 1 + nodes_to_add(demand, _offered(growth, places, target), policy.value_per_h, growth.more - 1)
    return nodes_to_add(demand, _offered(growth, places, target), policy.value_per_h, growth.more)


def _offered(growth: Growth, places: int, target: TargetState) -> NodeOffer:
    price_per_h = target.price_per_h if growth.price_per_h is None else growth.price_per_h
    return NodeOffer(places, growth.boot_s, price_per_h or 0.0)
