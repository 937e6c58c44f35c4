"""Tables and the picture of lab.traces."""

from pathlib import Path

import numpy as np

from lab.traces.run import CURVE_N, CURVE_PERCENTILES, CURVE_QUANTILES, HORIZONS, QUANTILES, TraceCase, pinball

PREDICTORS = ("now", "persistence", "N-sigma", "RC-like", "max of both", "carico")
FIELD = ("N-sigma", "RC-like", "max of both")
SHORT = 0.05
"""Short by more than this part of the node is a violation that matters."""
WARM_SLOTS = 7 * 288


def _column(cases: list[TraceCase], predictor: str, quantile: float = 0.95) -> np.ndarray:
    key = f"carico {quantile:g}" if predictor == "carico" else predictor
    return np.array([case.predicted[key] for case in cases])


def _truth(cases: list[TraceCase]) -> np.ndarray:
    return np.array([case.truth for case in cases])


def loss(cases: list[TraceCase], predictor: str, quantile: float = 0.95) -> float:
    return (
        float(pinball(_truth(cases), _column(cases, predictor, quantile), quantile).mean()) if cases else float("nan")
    )


def short(cases: list[TraceCase], predictor: str) -> float:
    return float((_truth(cases) - _column(cases, predictor) > SHORT).mean()) if cases else float("nan")


def best_of_field(cases: list[TraceCase], quantile: float = 0.95) -> float:
    return min(loss(cases, name, quantile) for name in FIELD)


def of(cases: list[TraceCase], horizon: str, first: int = WARM_SLOTS, last: int = 10**9) -> list[TraceCase]:
    return [case for case in cases if case.horizon == horizon and first <= case.slot < last]


def main_table(sets: dict[str, list[TraceCase]]) -> str:
    """Pinball at .95 × 1000 and cases short by more than 5 % of the node, after the first week."""
    lines = [
        "| set | horizon | " + " | ".join(PREDICTORS) + " | carico / best of the field |",
        "|---|---|" + "---|" * 7,
    ]
    for name, cases in sets.items():
        for horizon in HORIZONS:
            here = of(cases, horizon)
            cells = [f"{1000 * loss(here, p):.1f} ({short(here, p):.1%})" for p in PREDICTORS]
            lines.append(
                f"| {name} | {horizon} | "
                + " | ".join(cells)
                + f" | **{loss(here, 'carico') / best_of_field(here):.2f}** |"
            )
    return "\n".join(lines)


def quantile_table(sets: dict[str, list[TraceCase]]) -> str:
    lines = [
        "| set | horizon | "
        + " | ".join(f"{p} {q:g}" for q in QUANTILES for p in ("best of the field", "carico"))
        + " | truths below carico's .9 / .95 / .99 |",
        "|---|---|" + "---|" * 7,
    ]
    for name, cases in sets.items():
        for horizon in HORIZONS:
            here = of(cases, horizon)
            cells = [f"{1000 * x:.1f}" for q in QUANTILES for x in (best_of_field(here, q), loss(here, "carico", q))]
            held = [f"{np.mean(_truth(here) <= _column(here, 'carico', q)):.1%}" for q in QUANTILES]
            lines.append(f"| {name} | {horizon} | " + " | ".join(cells) + f" | {' / '.join(held)} |")
    return "\n".join(lines)


def cold_table(sets: dict[str, list[TraceCase]]) -> str:
    """Pinball at .95 × 1000 at 24 h, day by day from the first observation: RC-like and carico, and their ratio."""
    lines = ["| set | horizon | " + " | ".join(f"day {d}" for d in range(1, 8)) + " |", "|---|---|" + "---|" * 7]
    for name, cases in sets.items():
        for horizon in HORIZONS:
            cells = []
            for day in range(7):
                here = of(cases, horizon, 288 * day, 288 * (day + 1))
                rc, ours = loss(here, "RC-like"), loss(here, "carico")
                cells.append(f"{1000 * rc:.1f} → {1000 * ours:.1f} ({ours / rc:.2f})")
            lines.append(f"| {name} | {horizon} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def curve(cases: list[TraceCase], keys: list[str]) -> tuple[list[float], list[float]]:
    """Savings (share of Σ limits that a predictor sets free) and violations, one point per setting."""
    truth = _truth(cases)
    said = [np.array([case.predicted[key] for case in cases]) for key in keys]
    return [float(1 - p.mean()) for p in said], [float((truth > p + 1e-9).mean()) for p in said]


CURVES = {
    "N-sigma": [f"n {n:g}" for n in CURVE_N],
    "RC-like": [f"p {p:g}" for p in CURVE_PERCENTILES],
    "carico": [f"carico {q:g}" for q in CURVE_QUANTILES],
}


def draw(sets: dict[str, list[TraceCase]], path: Path) -> None:
    """Violations against savings at 24 h, one panel per set: lower right is better."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(sets), figsize=(4 * len(sets), 3.6), squeeze=False)
    for axes, (name, cases) in zip(panels[0], sets.items(), strict=True):
        here = of(cases, "24 h")
        for (label, keys), marker in zip(CURVES.items(), "so^", strict=True):
            axes.plot(*curve(here, keys), marker=marker, label=label, markersize=4)
        axes.plot(*curve(here, ["now"]), "x", label="now", color="grey")
        axes.set_title(name, fontsize=8)
        axes.set_xlabel("savings: 1 − predicted / Σ limits")
        axes.set_ylim(-0.02, 1.0)
    panels[0][0].set_ylabel("violations: truth above prediction")
    panels[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
