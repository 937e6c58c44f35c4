"""lab/results/plane.md and its figure, from lab/results/plane.json. Nothing is typed in by hand."""

import random
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any

Row = dict[str, Any]

GOALS = (0.5, 0.95)
"""p99 of node Lease writes against nothing, at most; the greedy client's throughput, at least."""

SENT_RATIO = 0.05
"""What was sent may differ by this from what was to be sent."""


def write(rows: list[Row], report: Path, figure: Path, machine: str) -> None:
    report.write_text(text(rows, figure, machine))
    draw(rows, figure)


def lease(row: Row, key: str = "p99") -> float | None:
    found: float | None = (row["leases"]["latency_ms"].get("PATCH") or {}).get(key)
    return found


def ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b


def text(rows: list[Row], figure: Path, machine: str) -> str:
    first, setup = rows[0], rows[0].get("setup") or {}
    nodes, pods = setup.get("nodes", 300), setup.get("nodes", 300) * setup.get("pods_per_node", 10)
    lines = [
        "# Control plane under a greedy client",
        "",
        f"Made by `python -m lab.plane` on {machine}, {min(row['when'] for row in rows)} and later; code "
        f"{setup.get('code', 'of an earlier version')}.",
        "",
        f"etcd, kube-apiserver {first.get('version', '1.20')}, "
        "kube-scheduler and kube-controller-manager share one CPU, all clients another;",
        f"{nodes:,} nodes, {pods:,} Pods{', kept by kwok' if setup.get('kwok') else ''}. Saturation is the most "
        f"requests per second in a closed loop: {first['saturation']:.0f}/s. The greedy client is a service account "
        "(level workload-low), open loop, at most 1,500 requests in flight; node Lease writes belong to the level "
        "system. The machine may be shared with other work: compare rows of one load. " + runs(rows),
        "× is what was really sent, over saturation.",
    ]
    for load in sorted({row["load"] for row in rows}):
        here = typical([row for row in rows if row["load"] == load])
        lines += ["", f"## {load} × saturation", "", *table(here), "", *verdict(here, load)]
        lines += paired([row for row in rows if row["load"] == load])
    lines += ["", f"![p99 of node Lease writes](../figures/{figure.name})", "", *curve(rows), "", *own(rows)]
    return "\n".join(lines) + "\n"


def runs(rows: Sequence[Row]) -> str:
    """How often each arm ran."""
    repeats = 1 + max(int(row.get("repeat", 0)) for row in rows)
    if repeats == 1:
        return "One run per arm, in random order, so that differences of a third or less may be noise;"
    return f"{repeats} runs per arm, in random order; of each the one with the median p99 of Lease writes is shown;"


DRAWS = 2000


def paired(rows: Sequence[Row]) -> list[str]:
    """Each arm over `nothing` of the same repeat, with a 95 % interval; empty with fewer than three repeats."""
    by_arm: dict[str, dict[int, Row]] = {}
    for row in rows:
        by_arm.setdefault(row["arm"], {})[int(row.get("repeat", 0))] = row
    nothing = by_arm.pop("nothing", {})
    lines = []
    for arm, mine in by_arm.items():
        cells = [
            cell([ratio(what(mine[n]), what(nothing[n])) for n in mine if n in nothing])
            for what in (lease, answered, bound_ms)
        ]
        if any(cells):
            lines.append(f"| {' | '.join([arm, *(one or 'unknown' for one in cells)])} |")
    if not lines:
        return []
    head = "| over nothing, in the same repeat | p99 of Lease writes | answers per second | Pod bound p50 |"
    return ["", head, "|---|---|---|---|", *lines]


def bound_ms(row: Row) -> float | None:
    found: float | None = (row["pods"].get("start_ms") or {}).get("p50")
    return found


def cell(ratios: Sequence[float | None]) -> str:
    """The geometric mean with its interval: repeats drawn again with a fixed seed.

    >>> cell([0.5, 0.5, 0.5]), cell([0.5, None, 0.5])
    ('0.50 (0.50 to 0.50)', '')
    """
    logs = [log(one) for one in ratios if one]
    if len(logs) < 3:
        return ""
    draw_one = random.Random(19)
    means = sorted(mean(draw_one.choices(logs, k=len(logs))) for _ in range(DRAWS))
    low, high = means[int(0.025 * DRAWS)], means[int(0.975 * DRAWS)]
    return f"{exp(mean(logs)):.2f} ({exp(low):.2f} to {exp(high):.2f})"


def table(here: dict[str, Row]) -> list[str]:
    head = (
        "| arm | Lease p50 / p99 ms | greedy sent/s, ok/s | LIST p50 / p99 ms | GET p50 / p99 ms "
        "| Pod bound p50 / p99 ms | rejected in other levels | seats |"
    )
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for arm, row in here.items():
        seats = sum((row["seats"] or {}).get("levels", {}).values()) or "-"
        asked = row["greedy"]["latency_ms"]
        cells = [
            arm,
            pair(row["leases"]["latency_ms"].get("PATCH")),
            f"{sent(row):.0f} ({sent(row) / row['saturation']:.2f} ×), {row['greedy']['ok_per_s']:.0f}",
            *(pair(asked.get(verb)) for verb in ("LIST", "GET")),
            pair(row["pods"].get("start_ms")),
            f"{elsewhere(row):.0f}",
            str(seats),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def sent(row: Row) -> float:
    """Requests per second that the greedy client really sent: short of CPU it sends fewer than it should."""
    asked = row["greedy"]
    if "sent_per_s" in asked:
        return float(asked["sent_per_s"])
    lasted_s = asked["ended"]["ok"] / asked["ok_per_s"]
    return float((sum(asked["ended"].values()) + asked["in_flight"]) / lasted_s)


def pair(found: dict[str, float] | None) -> str:
    return f"{found['p50']:.0f} / {found['p99']:.0f}" if found else "none finished"


def verdict(here: dict[str, Row], load: float) -> list[str]:
    """Each goal with what was measured, reached or not."""
    nothing, seats = here.get("nothing"), here.get("seats")
    if nothing is None or seats is None:
        return []
    faster, flow = ratio(lease(seats), lease(nothing)), ratio(answered(seats), answered(nothing))
    lines = [
        f"- node Lease writes, p99 with seats over without: {_r(faster)} (goal at 1.2: ≤ {GOALS[0]})",
        f"- answers per second to all clients, with seats over without: {_r(flow)} (goal: ≥ {GOALS[1]})",
        f"- rejected outside the greedy client's level, with seats: **{elsewhere(seats):.0f}** (goal: 0)",
    ]
    unequal = [arm for arm, row in here.items() if abs(sent(row) / row["saturation"] - load) > SENT_RATIO * load]
    if unequal:
        lines.append(
            f"- **not a test of the goals**: {', '.join(unequal)} did not get {load} × saturation, and arms with "
            "different loads cannot be ranked"
        )
        return lines
    if faster is not None and faster > GOALS[0] and load > 1:
        lines.append(missed(seats))
    if flow is not None and flow < GOALS[1]:
        lines.append(missed_flow(nothing, seats))
    return lines + [compared(arm, row, nothing) for arm, row in here.items() if arm not in ("nothing", "seats")]


def compared(arm: str, row: Row, nothing: Row) -> str:
    """One arm against nothing: what it did to Leases, and what it cost."""
    slower = ratio(lease(row), lease(nothing))
    flow = ratio(answered(row), answered(nothing))
    word = "; **Leases became slower**" if slower is not None and slower > 1 else ""
    return f"- {arm} over nothing: p99 of Lease writes {_r(slower)}, answers per second {_r(flow)}{word}"


def typical(rows: Sequence[Row]) -> dict[str, Row]:
    """The row of each arm with the median p99 of Lease writes."""
    by_arm: dict[str, list[Row]] = {}
    for row in rows:
        by_arm.setdefault(row["arm"], []).append(row)
    return {arm: sorted(some, key=lambda row: lease(row) or 1e9)[len(some) // 2] for arm, some in by_arm.items()}


def answered(row: Row) -> float:
    """Answers per second that were no rejections, to all clients."""
    return float(sum(row[who].get("ok_per_s", 0.0) for who in ("greedy", "leases", "pods")))


def elsewhere(row: Row) -> float:
    """Rejections in levels other than the greedy client's."""
    return float(sum(n for level, n in row["rejected"].items() if level != "workload-low"))


def missed_flow(nothing: Row, seats: Row) -> str:
    """Why fewer answers came, as far as the numbers say."""
    cores, refused = ([sum(row[what].values()) for row in (nothing, seats)] for what in ("cores", "rejected"))
    return (
        "- the throughput goal is missed. The control plane's CPU is used up without and with seats "
        f"({cores[0]:.2f} and {cores[1]:.2f} cores), but {refused[1]:.0f} requests are rejected instead of "
        f"{refused[0]:.0f}: a queue of one client holds 300, and the seats that are held back are places that it could "
        "wait in. A rejection takes CPU, too; and seats aim at 95 % of the cores that the curve's peak uses. How much "
        "is due to which was not isolated" + closed_loop(seats)
    )


def closed_loop(seats: Row) -> str:
    """What a client that never waits for a seat gets with about as many requests at once."""
    rates = {int(workers): rate for workers, rate in (seats.get("closed") or {}).items()}
    most = (seats["seats"] or {}).get("levels", {}).get("workload-low")
    near = [workers for workers in rates if most and workers <= most]
    if not near:
        return ""
    got, whole = rates[max(near)], max(rates.values())
    return (
        f". As a hint: with so few requests at once, {max(near)} workers in a closed loop got {got:.0f} of {whole:.0f} "
        f"answers per second ({got / whole:.2f}); {most} seats were left to that level"
    )


def missed(seats: Row) -> str:
    """What bounds the gain by construction. That it is the whole reason was not tested by an arm of its own."""
    levels = (seats["seats"] or {}).get("levels", {})
    return (
        "- the first goal is missed. A likely reason, not isolated by a run of its own: a reserve takes seats from all "
        f"levels in proportion; for system to keep {levels.get('system')} seats workload-low keeps "
        f"{levels.get('workload-low')}, and so many requests of the greedy client share the CPU with a Lease write"
    )


def _r(value: float | None) -> str:
    return "unknown" if value is None else f"**{value:.2f}**"


def curve(rows: list[Row]) -> list[str]:
    points = max((row["curve"] for row in rows), key=len)
    listed = ", ".join(f"({x:.1f}, {f:.2f})" for x, f in points)
    return [f"The curve f(x) as learned while saturation was measured (requests executing, cores used): {listed}."]


PERIOD_S = 60.0
"""The service's period in production; here it is 5 s."""


def own(rows: list[Row]) -> list[str]:
    seen = [row for row in rows if row.get("period")]
    if not seen:
        return []
    cpu_s = max(row["period"]["cpu_s"] for row in seen)
    memory = max(row["own"]["resident_bytes"] for row in seen) / 1e6
    requests = max(row["period"]["requests"] for row in seen)
    return [
        f"The service itself, once it runs: {1000 * cpu_s:.0f} ms of CPU and {requests:.1f} requests to the API server "
        f"per period, metrics included, the most of these runs; with the period of 60 s that is "
        f"**{cpu_s / PERIOD_S:.2%}** of a core (goal: ≤ 0.5 %) and {max(0.0, requests - 1) / 6:.2f} requests per 10 s "
        f"besides the metrics (goal: ≤ 1). Resident memory: **{memory:.0f} MB** (goal: ≤ 80)."
    ]


def draw(rows: list[Row], figure: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    loads = sorted({row["load"] for row in rows})
    canvas, axes = pyplot.subplots(1, len(loads), figsize=(3.2 * len(loads) + 1, 3.6), sharey=True, squeeze=False)
    for panel, load in zip(axes[0], loads, strict=True):
        here = [row for row in rows if row["load"] == load and lease(row) is not None]
        panel.bar([row["arm"] for row in here], [lease(row) for row in here])
        panel.set(title=f"{load} × saturation", yscale="log")
        panel.tick_params(axis="x", rotation=60)
    axes[0][0].set_ylabel("p99 of node Lease writes [ms]")
    canvas.savefig(figure, dpi=110, bbox_inches="tight")
    pyplot.close(canvas)
