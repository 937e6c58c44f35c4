"""A control plane in numbers and one remedy in words, from two readings of its metrics. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from carico_agent.plane.components import API, KINDS, LONG_RUNNING, executing, levels, load_of, one_process
from carico_agent.plane.lists import ListMemory, ResourceLists
from carico_agent.plane.recommend import SeatRecommendation
from carico_agent.plane.sizing import HANDS, queue_length_limit
from carico_agent.plane.window import Window

MAX_ROWS = 5
NOTHING = "nothing to do"
LIST_SHARE = 0.5
"""A LIST of one resource that takes more of the server's time than this is worth a word."""
MIN_PEAK_RATIO = 0.5
"""A peak of the curve below this share of the cores is not the server's limit. Requests that wait for a slow webhook
make a flat curve, too: 20 of them use as little CPU as 10."""


@dataclass(frozen=True, slots=True)
class ComponentRow:
    """One component; None is unknown."""

    name: str
    arrivals_per_s: float | None = None
    """λ."""
    served_per_core_s: float | None = None
    """μ."""
    cores: float | None = None
    utilisation: float | None = None
    """Cores in use over cores that could be: of its curve's peak where that is known, else of the machine."""
    waiting: float | None = None
    seats: int | None = None
    throttled_ratio: float | None = None
    missing: str = ""
    """Why nothing is known."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Who takes the API server's time."""

    what: str
    per_s: float
    busy: float
    """Requests of it in the server at once, on average."""
    share: float


@dataclass(frozen=True, slots=True)
class PlaneDiagnosis:
    """All that `carico plane` says."""

    window_s: float
    components: list[ComponentRow]
    verbs: list[Cost]
    clients: list[Cost]
    rejected_per_s: dict[str, float]
    executing: float | None
    one_process: bool
    recommendation: dict[str, Any] | str
    remedy: str
    curve: list[tuple[float, float]] = field(default_factory=list)
    servers: int = 1
    """API servers that have answered; the numbers are those of the busiest one."""
    lists: list[ResourceLists] = field(default_factory=list)
    """The costliest resources to list."""
    memory: ListMemory | None = None
    warnings: list[str] = field(default_factory=list)
    """What is not urgent now, and will be: memory for LISTs, client limits that a component waits for."""
    arguments: list[dict[str, object]] = field(default_factory=list)
    """Of the components on this machine, beside those of the document's table 4."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def row(name: str, window: Window | None, cores: float, throttled: float | None, missing: str = "") -> ComponentRow:
    """One line of the table; `cores`: what the component could use at most."""
    load = load_of(name, window) if window is not None else None
    if window is None or load is None:
        return ComponentRow(
            name, throttled_ratio=throttled, missing=missing or "not known yet: one reading is no window"
        )
    seats = sum(levels(window).values()) if name == API and levels(window) else None
    return ComponentRow(
        name,
        load.arrivals_per_s,
        load.served_per_core_s if load.core_s > 0 and load.requests > 0 else None,
        load.cores,
        load.cores / cores,
        KINDS[name].waiting(window),
        seats,
        throttled,
    )


def _costs(busy_s: Mapping[str, float], counts: Mapping[str, float], length_s: float) -> list[Cost]:
    whole = sum(busy_s.values())
    if whole <= 0:
        return []
    largest = sorted(busy_s, key=lambda what: busy_s[what], reverse=True)[:MAX_ROWS]
    return [
        Cost(what, counts.get(what, 0.0) / length_s, busy_s[what] / length_s, busy_s[what] / whole) for what in largest
    ]


def verb_costs(window: Window) -> list[Cost]:
    """By verb and resource, watches left out."""
    sums, counts = (
        {
            " ".join(filter(None, (verb, "/".join(filter(None, (resource, part)))))): value
            for (verb, resource, part), value in window.counted.get(family, {}).items()
            if verb not in LONG_RUNNING and value > 0
        }
        for family in ("apiserver_request_duration_seconds_sum", "apiserver_request_duration_seconds_count")
    )
    return _costs(sums, counts, window.length_s)


def client_costs(window: Window) -> list[Cost]:
    """By FlowSchema: as far as the server's own metrics distinguish clients."""
    sums, counts = (
        {schema: value for (_, schema), value in window.counted.get(family, {}).items() if value > 0}
        for family in (
            "apiserver_flowcontrol_request_execution_seconds_sum",
            "apiserver_flowcontrol_request_execution_seconds_count",
        )
    )
    return _costs(sums, counts, window.length_s)


def rejected(window: Window) -> dict[str, float]:
    found = window.counted.get("apiserver_flowcontrol_rejected_requests_total", {})
    return {level: value / window.length_s for (level,), value in found.items() if value > 0}


def remedy(
    rows: list[ComponentRow],
    verbs: list[Cost],
    refused: Mapping[str, float],
    found: SeatRecommendation | str,
    busy_ratio: float = 0.7,
) -> str:
    """The one thing to do, most urgent first."""
    by_name = {one.name: one for one in rows}
    api = by_name.get(API)
    if api is None or api.arrivals_per_s is None:
        return f"not known: {api.missing if api else 'no metrics'}"
    tight = [one for one in rows if (one.throttled_ratio or 0) >= 0.6]
    if tight:
        worst = max(tight, key=lambda one: one.throttled_ratio or 0)
        return (
            f"raise or remove the CPU limit of {worst.name}: it is throttled in {worst.throttled_ratio:.0%} of its "
            "periods; weights (plugin control_plane) share CPUs without wasting them"
        )
    listing = next((one for one in verbs if one.what.startswith("LIST") and one.share > LIST_SHARE), None)
    if listing is not None and (api.utilisation or 0) >= busy_ratio:
        return (
            f"{listing.what} takes {listing.share:.0%} of the API server's time ({listing.per_s:.1f} per second): let "
            "its clients watch, or list with resourceVersion=0"
        )
    if isinstance(found, SeatRecommendation) and api.seats is not None and found.seats < api.seats:
        where = f"; level {max(refused, key=lambda one: refused[one])} rejects requests" if refused else ""
        return (
            f"hold seats back: {found.seats} seats keep {found.cores:.2f} cores busy, {api.seats} are allowed{where} "
            '(carico plane --serve with seats = "write")'
        )
    if refused:
        level = max(refused, key=lambda one: refused[one])
        if (api.utilisation or 0) < busy_ratio:
            return (
                f"level {level} rejects {refused[level]:.1f} requests per second while the CPU has room: its requests "
                "hold their seats for long (a slow admission webhook, etcd), or it has too few; look for the slow part "
                "(apiserver_admission_webhook_admission_duration_seconds), then raise its nominalConcurrencyShares"
            )
        return f"level {level} rejects {refused[level]:.1f} requests per second: slow its clients down or add servers"
    return NOTHING


def diagnose(
    windows: Mapping[str, Window | None],
    missing: Mapping[str, str],
    throttled: Mapping[str, float | None],
    cores: float,
    found: SeatRecommendation | str,
    curve: list[tuple[float, float]],
    busy_ratio: float = 0.7,
    peak: float | None = None,
    servers: int = 1,
) -> PlaneDiagnosis:
    """Everything about one window. `peak`: the most cores that the API server can use, once its curve shows that;
    `servers`: API servers that have answered."""
    names = [name for name in KINDS if name in windows or name in missing]
    usable = {API: peak if peak is not None and peak >= MIN_PEAK_RATIO * cores else cores}
    rows = [
        row(name, windows.get(name), usable.get(name, cores), throttled.get(name), missing.get(name, ""))
        for name in names
    ]
    api = windows.get(API)
    verbs = verb_costs(api) if api else []
    refused = rejected(api) if api else {}
    return PlaneDiagnosis(
        api.length_s if api else 0.0,
        rows,
        verbs,
        client_costs(api) if api else [],
        refused,
        executing(api) if api else None,
        one_process(api) if api else False,
        asdict(found) if isinstance(found, SeatRecommendation) else found,
        remedy(rows, verbs, refused, found, busy_ratio),
        curve,
        servers,
    )


HEADING = (
    f"{'component':26}{'λ 1/s':>9}{'μ 1/(s·core)':>14}{'cores':>8}{'used':>7}{'waiting':>9}{'seats':>7}  throttled"
)


def _line(one: ComponentRow) -> str:
    return (
        f"{one.name:26}{_n(one.arrivals_per_s, '.1f'):>9}{_n(one.served_per_core_s, '.0f'):>14}"
        f"{_n(one.cores, '.2f'):>8}{_n(one.utilisation, '.0%'):>7}{_n(one.waiting, '.0f'):>9}"
        f"{_n(one.seats, 'd'):>7}{_n(one.throttled_ratio, '.0%'):>11}" + (f"  {one.missing}" if one.missing else "")
    )


def describe(seen: PlaneDiagnosis) -> str:
    """The table, the costliest, and the remedy, for people."""
    lines = [HEADING, *map(_line, seen.components)]
    if seen.servers > 1:
        lines.append(f"{seen.servers} API servers answer at this address; the busiest one is shown")
    if seen.one_process:
        lines.append("one process does it all (k3s): seats and this diagnosis apply to it, weights do not")
    for title, costs in (("costliest requests", seen.verbs), ("costliest clients, by flow schema", seen.clients)):
        lines += (
            [f"\n{title}", *(f"  {one.what:44}{one.per_s:9.1f}/s {one.share:6.1%}" for one in costs)] if costs else []
        )
    lines += _list_lines(seen.lists)
    lines += _argument_lines(seen.arguments)
    for level, per_s in seen.rejected_per_s.items():
        lines.append(f"\nlevel {level} rejects {per_s:.1f} requests per second")
    if isinstance(seen.recommendation, str):
        lines.append(f"\nno seats recommended: {seen.recommendation}")
    else:
        advice = seen.recommendation
        lines.append(
            f"\nrecommended: {advice['seats']} seats, queue {advice['queue']} (queueLengthLimit "
            f"{queue_length_limit(advice['queue'])} with handSize {HANDS}), {advice['wait_ms']:.1f} ms per request"
        )
    lines += [f"warning: {warning}" for warning in seen.warnings]
    return "\n".join([*lines, f"remedy: {seen.remedy}"])


def _list_lines(lists: list[ResourceLists]) -> list[str]:
    if not lists:
        return []
    title = f"\n{'LISTs by resource':28}{'from etcd':>11}{'objects':>9}{'from cache':>12}{'objects':>9}{'stored':>9}"
    return [
        title,
        *(
            f"  {one.resource:26}{one.etcd_per_s:9.1f}/s{one.etcd_objects:9.0f}{one.cache_per_s:10.1f}/s"
            f"{one.cache_objects:9.0f}{_n(one.stored_bytes and one.stored_bytes / 1e6, '.1f'):>6} MB"
            for one in lists
        ),
    ]


def _argument_lines(rows: list[dict[str, object]]) -> list[str]:
    if not rows:
        return []
    return [
        "\narguments of components on this machine (the last column: table 4 of MerKury, for thousands of nodes)",
        *(
            f"  {row['component']:26}{row['argument']:34}{row['value']:>12.12g}"
            f"{' (default)' if row['is_default'] else '':11}{row['documented']:>12.12g}"
            for row in rows
        ),
    ]


def _n(value: float | None, spelled: str) -> str:
    return "-" if value is None else format(value, spelled)
