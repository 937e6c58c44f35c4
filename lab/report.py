"""Runs the experiments and writes lab/REPORT.md. Exits non-zero when a headline claim does not hold.

python -m lab.report              everything (a quarter of an hour on two cores), writes the report and the figures
python -m lab.report --quick      the headline claims only, at most 2 minutes, writes nothing
python -m lab.report --only mixed faults      these sections anew, the others from lab/results/
python -m lab.report --only overhead          the one that measures this machine, which should be quiet
python -m lab.report --write      the report anew from lab/results/, nothing is run

Sections run side by side, one per CPU (--jobs); each is deterministic, so their order does not matter. Only `overhead`
measures real time and is run last and alone.
"""

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path

from lab.experiments.common import REPORTED_SEEDS, TRAINING_SEEDS, ReportClaim, Section
from lab.support.code_hash import code_hash, files_of

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs/paper.md"
ALL = (
    "calibration",
    "headline",
    "paper",
    "prior",
    "probes",
    "sizes",
    "mixed",
    "isolation",
    "heavy",
    "faults",
    "estimators",
    "scenarios",
    "scale",
    "overhead",
    "tuning",
)
ALONE = ("overhead",)
QUICK = ("calibration", "headline", "sizes", "mixed", "isolation", "heavy", "estimators", "scenarios")

CODE = (
    "carico_agent/core",
    "carico_agent/extender/policies",
    "carico_agent/extender/placement",
    "carico_agent/extender/nodes.py",
    "carico_agent/extender/workload_costs.py",
    "carico_agent/federation/moments.py",
    "carico_agent/federation/pairwise_merge.py",
    "carico_agent/federation/cluster_workloads.py",
    "carico_agent/node/publish/throttle.py",
    "carico_agent/node/sampling/contention.py",
    "lab/sim",
    "lab/experiments/common.py",
)
"""What every section is made with, beside its own file."""

INTRODUCTION = f"""# What the lab found

Written by `make lab` (`python -m lab.report`); do not edit. The production code is in the loop:
`core.CapacityModel` at 10 Hz on every simulated node, `telemetry.contention`, the write throttle `publish.throttle`
and the extender's `schedule.policy`. Reported seeds are
{REPORTED_SEEDS.start}–{REPORTED_SEEDS.stop - 1} (fewer where a section says so by its first ones); what was
chosen was chosen on seeds {TRAINING_SEEDS.start}–{TRAINING_SEEDS.stop - 1} and other workloads (last section).
The same seeds give the same tables.

Parameters unless stated otherwise: 19 nodes of 4 cores and 8 GiB; pi-2000 takes 5.9 core seconds (± 8 %) on one
thread; sklearn 97 core seconds on 3.6 threads and 650 MiB; 1–4 s (mean 2.3) from bound to running; the
scheduler binds 100 Pods/s and sees starts and ends after 0.2–1.2 s; a container start takes one CPU for 200
ms, a stop half of one. The paper's scheduler gets its numbers once a second; carico writes through its throttle, at
most once in 5 s per node. JCT: job completion time, PCT: Pod completion time (start to end), both as the paper
defines them.

"""

LIMITS = """## What this simulation cannot show

- **The headline's learning.** A pi-2000 Pod uses one core, which is carico's prior, so its published slots stay at 7
  throughout: that section compares schedulers. Whether carico *learns* is in "Learned, or lucky?".
- **Staleness under change.** For the same reason numbers 60 s old lose nothing there: they had not changed. It shows
  that slots do not age when Pods come and go (the paper's Pod-Capacity does), not that old numbers are harmless when
  the workload changes.
- **Federation.** carico's runs are without it, but for the table of the section on the document's method; the paper's
  CARICO has its queue of merges everywhere.
- **Untouched seeds.** What limits starting Pods was chosen on training seeds and workloads (last section), but by us,
  who had seen the headline on reported seeds with other values. The training table stands by itself.
- **Other machines.** Cores are equal and share without loss; no caches, NUMA, SMT, frequency scaling, steal time or
  noisy hypervisor. The paper's own machines gained throughput from *more* Pods per core (figure 4.4), which processor
  sharing cannot reproduce.
- **The kernel's scheduler.** Pressure follows the measured two-core table, extrapolated to other core counts by the
  reasoning in lab/sim/cluster.py. Nobody measured it on 64 cores.
- **Kubernetes itself.** API server, etcd, kubelet and the Job controller are delays drawn from a distribution. Their
  queues under load, image pulls, evictions, retries and back-off are missing; `make test-kube` has the real control
  plane.
- **Disk, network, throttled containers.** CPU and memory only; a quota is a matter for the tests on a real node.
- **The paper's CARICO** is our reading of its text, with constants that it does not print (docs/paper.md).
- **Latency.** Table 5.4 rests on a one-parameter queueing model, fitted to one cell.
"""


def experiment(name: str, quick: bool) -> tuple[Section, float]:
    """One section and how long it took [s]."""
    began = time.perf_counter()
    section: Section = importlib.import_module(f"lab.experiments.{name}").section(quick)
    return section, time.perf_counter() - began


def experiments(names: Sequence[str], quick: bool, jobs: int) -> Iterator[tuple[str, Section]]:
    """All of them as they are done, with a line of progress for each."""
    began, done = time.perf_counter(), 0
    together = [name for name in names if name not in ALONE]
    print(f"{len(names)} sections, {jobs} at a time: {', '.join(names)}", flush=True)
    with ProcessPoolExecutor(jobs) as pool:
        tasks = {pool.submit(experiment, name, quick): name for name in together}
        for task in as_completed(tasks):
            done += 1
            section, took_s = task.result()
            _progress(tasks[task], section, took_s, f"{done}/{len(names)}", time.perf_counter() - began)
            yield tasks[task], section
    for name in [name for name in names if name in ALONE]:
        done += 1
        section, took_s = experiment(name, quick)
        _progress(name, section, took_s, f"{done}/{len(names)}", time.perf_counter() - began)
        yield name, section


def _progress(name: str, section: Section, took_s: float, count: str, since_s: float) -> None:
    print(f"[{count:>5}] {name:12} took {took_s:5.0f} s, {since_s:5.0f} s since the start", flush=True)
    for claim in section.claims:
        print(f"    {_verdict(claim):9} {claim.text}", flush=True)


def _verdict(claim: ReportClaim) -> str:
    return "holds" if claim.holds else "FAILS" if claim.headline else "short"


def made_with(name: str) -> str:
    """The hash of the code, with its constants and seeds, that makes a section."""
    return code_hash(files_of([*CODE, f"lab/experiments/{name}.py"]))


def saved(name: str) -> Section | None:
    """A section as it was saved; its text and its claims say so if it was made with other code than this."""
    path = HERE / "results" / f"{name}.json"
    if not path.exists():
        return None
    data = json.loads(path.read_text())
    section = Section(data["title"], data["text"], [ReportClaim(**claim) for claim in data["claims"]])
    if (code := data.get("code")) == (now := made_with(name)):
        return section
    why = f"This section was made with other code ({code or 'unknown'}, now {now})."
    section.text = [f"**{why} `python -m lab.report --only {name}` makes it anew.**", "", *section.text]
    section.claims = [replace(claim, text=f"{claim.text} (made with other code)") for claim in section.claims]
    return section


def save(name: str, section: Section, code: str) -> None:
    """`code`: the hash of what made it, taken before the run; the tree may have changed since."""
    (HERE / "results").mkdir(exist_ok=True)
    body = {"code": code, **asdict(section)}
    (HERE / "results" / f"{name}.json").write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")


def write(sections: list[Section], missing: list[str]) -> None:
    """lab/REPORT.md: the claims first, then how they came about."""
    lines = [INTRODUCTION]
    if missing:
        lines += [f"**Not in this report, because not run with this code: {', '.join(missing)}.**\n"]
    lines += ["## Claims\n"]
    rows = [(claim, section.title) for section in sections for claim in section.claims]
    lines += [f"- **{_verdict(claim)}** {claim.text}" for claim, _ in rows]
    for section in sections:
        lines += [f"\n## {section.title}\n", *section.text]
    text = "\n".join([*lines, "", LIMITS])
    (HERE / "REPORT.md").write_text(text)


def write_page(section: Section) -> None:
    """docs/paper.md: the section on the document's method, between its marks."""
    begin, end = "<!-- begin lab/results/paper.json -->\n", "<!-- end -->"
    before, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(before + begin + "\n".join([*section.text, ""]).strip() + "\n" + end + rest.partition(end)[2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="headline claims only, writes nothing")
    parser.add_argument("--only", nargs="+", choices=ALL, metavar="SECTION", help=", ".join(ALL))
    parser.add_argument("--write", action="store_true", help="write the report from saved results, run nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="sections at a time")
    given = parser.parse_args()
    chosen = () if given.write else given.only or (QUICK if given.quick else ALL)
    sections, codes = {}, {name: made_with(name) for name in chosen}
    for name, section in experiments(chosen, given.quick, given.jobs) if chosen else ():
        sections[name] = section
        if not given.quick:
            save(name, section, codes[name])  # at once: a run that is stopped keeps what it has
    if not given.quick:
        sections = {name: found for name in ALL if (found := sections.get(name) or saved(name))}
        write(list(sections.values()), [name for name in ALL if name not in sections])
        if "paper" in sections:
            write_page(sections["paper"])
    claims = [claim for section in sections.values() for claim in section.claims]
    failed = [claim for claim in claims if claim.headline and not claim.holds]
    short = [claim for claim in claims if not claim.headline and not claim.holds]
    print(f"{len(claims)} claims: {len(failed)} headline claims fail, {len(short)} others fall short")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
