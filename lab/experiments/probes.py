"""Jobs whose Pods nobody has measured: how many of them a node lets in before they are.

All Pods of a job are placed within seconds, on the prior of one core each, and nothing that is placed can be taken
back. Few at a time cost job time where the prior happens to be right, and save Pod time where it is wrong. The setting
is chosen by regret over all jobs, not by one of them.
"""

from dataclasses import replace

from carico_agent.extender.policies.pod_capacity import PodCapacity, PodCapacitySettings
from lab.experiments.common import REPORTED_SEEDS, Section, mean_jct, mean_pct, runs
from lab.sim.engine import Result, Setup
from lab.sim.schedulers.carico import Carico
from lab.sim.workload import LIGHT, PI, SKLEARN, PodBatch

NODES = 6
LIMITS = (0, 1, 2, 4)
JOBS = {
    "sklearn, 3.6 cores": [PodBatch(SKLEARN, 32)],
    "pi-2000, 1 core": [PodBatch(PI, 316)],
    "2 cores": [PodBatch(replace(PI, name="two", threads=2.0), 160)],
    "half a core": [PodBatch(replace(PI, name="half", threads=0.5), 316)],
    "a fifth of a core": [PodBatch(LIGHT, 200)],
    "1 core for a minute": [PodBatch(replace(PI, name="long", work_core_s=60.0), 100)],
}


def limited(most: int) -> Carico:
    return Carico(policy=PodCapacity(PodCapacitySettings(max_unmeasured=most)))


def section(quick: bool) -> Section:
    s = Section("Pods that nobody has measured", quick=quick)
    which = REPORTED_SEEDS[:1] if quick else REPORTED_SEEDS[:3]
    found = {
        job: {most: runs(lambda most=most: limited(most), pods, which, Setup(nodes=NODES)) for most in LIMITS}
        for job, pods in JOBS.items()
    }
    s.say(
        f"Cold agents on {NODES} nodes. A node lets in at most so many Pods of a workload that no node has measured "
        "(`max_unmeasured`; 0: no limit): JCT / mean PCT [s]. Regret: the worse of both as a multiple of the best "
        "setting's, the worst over jobs."
    )
    rows = [(job, *(f"{mean_jct(r):.0f} / {mean_pct(r):.1f}" for r in by.values())) for job, by in found.items()]
    regrets = {most: max(_regret(by, most) for by in found.values()) for most in LIMITS}
    rows.append(("regret", *(f"{regret:.2f}" for regret in regrets.values())))
    s.table(("job", *(str(most) if most else "no limit" for most in LIMITS)), rows)
    default = PodCapacitySettings().max_unmeasured
    s.claim(
        f"Pods that nobody has measured: the default lets in {default} per node, with a regret of "
        f"{regrets[default]:.2f} (the least of all is {min(regrets.values()):.2f}, without a limit {regrets[0]:.2f})",
        regrets[default] <= 1.05 * min(regrets.values()),
        headline=False,
    )
    cold = found["sklearn, 3.6 cores"]
    s.claim(
        f"cold sklearn Pods take {mean_pct(cold[default]):.0f} s in the mean, {mean_pct(cold[0]):.0f} without a limit, "
        "at most half",
        mean_pct(cold[default]) <= 0.5 * mean_pct(cold[0]),
        headline=False,
    )
    return s


def _regret(by: dict[int, list[Result]], most: int) -> float:
    jct, pct = ({limit: measure(r) for limit, r in by.items()} for measure in (mean_jct, mean_pct))
    return max(jct[most] / min(jct.values()), pct[most] / min(pct.values()))
