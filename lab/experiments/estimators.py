"""The five estimators side by side (figure 4.9): accuracy on synthetic nodes, and how they follow bursts."""

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.core.estimators import ESTIMATORS
from lab.experiments.common import FIGURES, REPORTED_SEEDS, Section, plot
from lab.sim import accuracy
from lab.sim.synthetic import SCENARIOS, samples


def section(quick: bool) -> Section:
    s = Section("Estimators", quick=quick)
    which = REPORTED_SEEDS[:1] if quick else REPORTED_SEEDS[:3]
    names = ["resource-space", "paper-dual"] if quick else list(ESTIMATORS)
    s.say(
        "RMS error of Pod-Capacity [Pods] on synthetic nodes with known truth (lab/sim/synthetic.py), worst seed, "
        "after 60 s; "
        "with a prior wrong by 4, after 120 s:"
    )
    rows, worst = [], 0.0
    for factor, after_s in ((1.0, 60.0),) if quick else ((1.0, 60.0), (4.0, 120.0), (0.25, 120.0)):
        for scenario in SCENARIOS:
            rms = [
                max(accuracy.score(scenario, name, seed, factor, after_s, 200.0).rms for seed in which)
                for name in names
            ]
            rows.append((scenario.name + (f", prior × {factor:g}" if factor != 1 else ""), *rms))
            worst = max(worst, rms[0]) if factor == 1 else worst
    s.table(("node", *names), rows)
    s.claim(f"estimators: resource-space is within {worst:.2f} Pods RMS on every node, at most .5", worst <= 0.5)
    if not quick:
        _figure()
        s.figure(
            "estimators.png",
            "Bursts of Pods on a 4-core node (figure 4.9): true and estimated Pod-Capacity; cut off at 16.",
        )
    return s


def _figure() -> None:
    plt = plot()
    figure, axes = plt.subplots(2, 1, figsize=(9, 5.2), sharex=True, height_ratios=[3, 1])
    trace = list(samples(SCENARIOS[0], REPORTED_SEEDS[0], 150.0))
    t = [x.t for x in trace]
    axes[0].plot(t, [x.truth for x in trace], color="black", lw=2.5, alpha=0.5, label="truth")
    colours = ["#0b6e4f", "#30638e", "#d1495b", "#edae49", "#8d5fd3"]
    for name, colour in zip(ESTIMATORS, colours, strict=True):
        model = CapacityModel(("cpu", "memory"), ModelConfig(cores=4, estimator=name))
        values = []
        for x in trace:
            model.observe(x.t, x.usage, x.pods)
            values.append(min(model.estimate().pod_capacity, 30.0))
        axes[0].plot(t, values, color=colour, lw=1.8 if name == "resource-space" else 0.9, label=name)
    axes[0].set(ylabel="Pod-Capacity [Pods]", ylim=(0, 16))
    axes[0].legend(fontsize=8, ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes[1].step(t, [x.pods for x in trace], color="#555555", where="post")
    axes[1].set(xlabel="time [s]", ylabel="Pods", yticks=range(0, 9, 2))
    figure.savefig(FIGURES / "estimators.png")
    plt.close(figure)
