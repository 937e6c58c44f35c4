"""What the extender costs: `python -m lab.bench.extender [answers] [policies] [throughput] [--write]
[--nodes N] [--pods N] [--rounds N]`.

answers: filter + prioritize over HTTP with 5,000 nodes, as kube-scheduler asks (nodeCacheCapable), p50 and p99.
policies: the same for every policy, with nodes that publish slots and with nodes that also publish their room
(lab/bench/extender_answers.py).
throughput: Pods per second through a real kube-scheduler, without and with the extender (lab/bench/throughput.py).
--write puts the tables, and under which conditions they were made, into lab/results/extender.md; what was not asked for
stays there as it was.
"""

import argparse
from collections.abc import Callable

from lab.bench import extender_answers, throughput
from lab.bench.machine import conditions, stolen_ticks
from lab.support import TREE

RESULTS = TREE / "lab/results/extender.md"
Row = tuple[str, ...]


def table(heads: Row, rows: list[Row]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="answers|policies|throughput", help="default: all")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.relative_to(TREE)}")
    size = parser.add_argument_group("throughput")
    size.add_argument("--nodes", type=int, default=1000)
    size.add_argument("--pods", type=int, default=1000)
    size.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: known are {', '.join(PARTS)}")
    for part in given.parts or PARTS:
        before, about = stolen_ticks(), conditions()
        title, text, heads, measure = PARTS[part]
        rows = measure(given)
        stolen, whole = (now - then for now, then in zip(stolen_ticks(), before, strict=True))
        about = f"{about} The hypervisor gave {stolen / whole:.0%} of this machine's CPU time to others meanwhile."
        section = f"{text}\n\n{about}\n\n{table(heads, rows)}"
        print(f"## {title}\n\n{section}", flush=True)
        if given.write:
            RESULTS.write_text(with_section(RESULTS.read_text() if RESULTS.exists() else "", title, section))


PARTS: dict[str, tuple[str, str, Row, Callable[[argparse.Namespace], list[Row]]]] = {
    "answers": (
        "Answers",
        "Over HTTP on loopback, until the last byte is there; CPU is the extender's, for both verbs.",
        extender_answers.ANSWERS,
        lambda given: extender_answers.answers(),
    ),
    "policies": (
        "Policies",
        "The same for every policy: 5,000 nodes, half of them full by slots. Goal: p99 of filter + prioritize ≤ 15 ms. "
        "On a machine that others use, p99 is also their doing; CPU is the extender's alone.",
        extender_answers.POLICIES,
        lambda given: extender_answers.each_policy(),
    ),
    "throughput": (
        "kube-scheduler's throughput",
        "1,000 Pods on 1,000 nodes (unless asked otherwise), the kube-scheduler of `make kube` (or of "
        "KUBEBUILDER_ASSETS) with qps 500 and burst 1000, control plane and extender on the same machine; medians "
        "of three rounds, mean time of an answer.",
        throughput.HEADS,
        lambda given: throughput.throughput(given.nodes, given.pods, given.rounds),
    ),
}


def with_section(old: str, title: str, section: str) -> str:
    """The report with this section renewed; the others stay, in the order of PARTS.

    >>> made = with_section(with_section("", "Policies", "a"), "Answers", "b")
    >>> [line for line in with_section(made, "Policies", "c").splitlines() if line[:2] in ("##", "a", "b", "c")]
    ['## Answers', 'b', '## Policies', 'c']
    """
    found = dict(part.split("\n", 1) for part in old.split("\n## ")[1:])
    found[title] = f"\n{section}\n"
    order = [known for known, *_ in PARTS.values() if known in found]
    body = "\n\n".join(f"## {known}\n\n{found[known].strip()}" for known in order)
    head = (
        "# What the extender costs\n\n`python -m lab.bench.extender [PART] --write` makes this file, a part at a time."
    )
    return f"{head}\n\n{body}\n"


if __name__ == "__main__":
    main()
