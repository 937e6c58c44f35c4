"""The page of lab.node: a picture and a table of each run, and what events and throttling show."""

import time
from pathlib import Path

import numpy as np

from carico_agent.lib.net.times import parse_rfc3339
from lab.node.run import NodeRun


def lead_ms(run: NodeRun) -> list[float]:
    """How long the first event of each burst came before usage rose by half a Pod [ms]."""
    offset_s = time.time() - time.monotonic()
    base, cost = run.truth()
    leads, previous_t = [], -np.inf
    when = run.column("t")
    raw = run.column("signals", f"{run.resource}_raw" if run.resource == "cpu" else run.resource)
    for event in run.events:
        t = parse_rfc3339(event["time"]) - offset_s
        if event["topic"] == "/containers/create" and t - previous_t > 3.0:
            after = np.flatnonzero((when > t) & (raw > base + cost / 2))
            if len(after):
                leads.append(1e3 * (when[after[0]] - t))
        previous_t = t
    return leads


def picture(run: NodeRun, path: Path) -> None:
    """Usage, Pods, and Pod-Capacity with its interval beside the truth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    t, pods = run.t, run.column("pods")
    figure, (top, middle, bottom) = plt.subplots(3, 1, figsize=(11, 7.5), sharex=True, height_ratios=(2, 1, 3))
    for name in run.statuses[0]["usage"]:
        top.plot(t, run.column("usage", name), label=name, linewidth=1)
    top.axhline(run.limit, color="0.6", linestyle=":", linewidth=1)
    top.set(ylabel="usage", ylim=(0, 1.05), title=f"{run.name}: a real node, real containers")
    top.legend(loc="upper left", ncols=3)
    middle.step(t, pods, where="post", color="0.3")
    middle.set_ylabel("Pods")
    truth = run.true_capacity()
    most = 1.6 * truth.max()
    bottom.fill_between(
        t,
        run.column("low"),
        np.minimum(np.nan_to_num(run.column("high"), nan=most), most),
        color="tab:blue",
        alpha=0.2,
        label="interval",
    )
    bottom.plot(t, run.column("pod_capacity"), color="tab:blue", linewidth=1.4, label="Pod-Capacity")
    bottom.step(t, truth, where="post", color="tab:red", linewidth=1, label="truth")
    bottom.set(ylabel="Pods that still fit", xlabel="seconds", ylim=(0, most))
    bottom.legend(loc="upper right", ncols=3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def table(run: NodeRun) -> list[str]:
    """Per number of Pods: usage, what was published, what was true."""
    pods, counted = run.column("pods"), run.settled() & run.after_first_burst()
    usage, result, true = run.column("usage", run.resource), run.column("pod_capacity"), run.true_capacity()
    lines = [
        f"| Pods | {run.resource} usage | Pod-Capacity published | true | mean abs error |",
        "|---|---|---|---|---|",
    ]
    for n in sorted({int(n) for n in pods[counted]}):
        at = counted & (pods == n)
        error = np.abs(result[at] - true[at]).mean()
        lines.append(
            f"| {n} | {usage[at].mean():.3f} | {result[at].mean():.2f} | {true[at].mean():.2f} | {error:.2f} |"
        )
    errors, (base, cost) = run.errors(), run.truth()
    inside = ((run.column("low") <= true) & (true <= np.nan_to_num(run.column("high"), nan=np.inf)))[counted].mean()
    summary = (
        f"{run.name}: mean absolute error {np.abs(errors).mean():.2f} Pods, largest {np.abs(errors).max():.2f}, "
        f"truth inside the interval {inside:.0%}; a Pod takes {cost:.3f}, the idle node {base:.3f}; "
        f"{(run.limit - base) / cost:.2f} fit in all"
    )
    return [*lines, "", summary, ""]


def section(run: NodeRun, out: Path) -> list[str]:
    picture(run, out / f"node-{run.name}.png")
    return [f"## {run.name}", "", f"![{run.name}](node-{run.name}.png)", "", *table(run)]


def events_section(run: NodeRun) -> list[str]:
    leads = lead_ms(run)
    return [
        "## Events and the spike",
        "",
        f"The first container event came before usage rose in all {len(leads)} "
        f"bursts: by {np.median(leads):.0f} ms (median), {min(leads):.0f} ms at least.",
        "",
    ]


def throttled_section(quota: dict[str, float]) -> list[str]:
    return [
        "## A throttled container is not contention",
        "",
        f"Idle node: Pod-Capacity {quota['idle']:.2f}. With one container at its quota of a tenth of a core "
        f"(raw cpu pressure {quota['pressure_raw']:.2f}): {quota['corrected']:.2f} "
        f"({quota['corrected'] / quota['idle'] - 1:+.1%}); the paper's metric would say {quota['raw']:.2f} "
        f"({quota['raw'] / quota['idle'] - 1:+.1%}).",
        "",
    ]
