"""The command line of `carico recommend`, and what it means."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from carico_agent.command import add_socket
from carico_agent.lib.quantities import cores, duration, memory, ratio, share

if TYPE_CHECKING:  # numpy is loaded only when there is something to compute
    from carico_agent.recommend.method import AllowedRange, Options
    from carico_agent.recommend.workload import NodeSize

OUTPUTS = ("table", "wide", "json", "yaml", "csv", "vpa", "patch", "json-patch", "resize", "checkpoint")
TEMPLATES = ("vpa", "patch", "json-patch")
"""Outputs that change a template, which stays for days."""
SORTS = ("name", "severity", "cpu-savings", "memory-savings")
LIMIT_RULES = ("keep", "proportional", "none")
LIMIT_HELP = "keep it unless the request passes it (default), keep its proportion to the request, or drop it"
Quantity = Callable[[str], float]


def _bounded(quantity: Quantity) -> Callable[[str], tuple[str, float]]:
    """`app=100m`, or `100m` for all containers."""

    def parse(text: str) -> tuple[str, float]:
        container, found, amount = text.rpartition("=")
        return (container if found else "*"), quantity(amount)

    return parse


def _add_which(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which workloads")
    which.add_argument("-n", "--namespace", metavar="NAME", action="append", default=[], help="a pattern; repeatable")
    which.add_argument("--not-namespace", metavar="NAME", action="append", default=[], help="leave these out")
    which.add_argument("-l", "--selector", metavar="LABELS", default="", help="only Pods with these labels (--cluster)")
    which.add_argument(
        "--cluster", action="store_true", help="owners, requests, replicas and HPAs from the API server, by kubeconfig"
    )
    which.add_argument("--kubeconfig", default="", metavar="FILE", help="default: $KUBECONFIG, or ~/.kube/config")
    which.add_argument("--context", default="", metavar="NAME", help="a context of it")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="WORKLOAD", nargs="*", help="[apply] and a name, namespace/name or pattern")
    _add_which(parser)
    source = parser.add_argument_group("where the history comes from")
    one = source.add_mutually_exclusive_group()
    one.add_argument("--trace", metavar="FILE", nargs="+", help="files made by `carico agent --record`")
    one.add_argument("--prometheus", metavar="URL", help="a Prometheus server, such as http://localhost:9090")
    one.add_argument("--checkpoint", metavar="FILE", help="VerticalPodAutoscalerCheckpoints, JSON or YAML; - is stdin")
    add_socket(parser)
    source.add_argument("--since", metavar="TIME", type=duration, help="Prometheus: length of the history (default 8d)")
    source.add_argument("--step", metavar="TIME", type=duration, default=60.0, help="Prometheus: a point every (60s)")
    source.add_argument("--timeout", metavar="TIME", type=duration, default=30.0, help="Prometheus: per query (30s)")
    source.add_argument("--token-file", metavar="FILE", help="Prometheus: a bearer token")
    how = parser.add_argument_group("how")
    how.add_argument("--method", default="vpa", help="vpa (default), peak, walk or arima")
    how.add_argument("--percentile", type=share, default=0.9, help="of usage, 90 (default) or 0.9")
    how.add_argument("--margin", type=ratio, default=0.15, help="on top, 0.15 (default) or 15%%")
    how.add_argument("--half-life", metavar="TIME", type=duration, help="time after which a sample counts half (24h)")
    how.add_argument("--safety", metavar="N", type=float, default=3.0, help="steps of safety of walk and arima (3)")
    how.add_argument("--variance", choices=("exact", "thesis"), default="exact", help="of arima's forecast")
    how.add_argument("--guaranteed", action="store_true", help="limits equal to requests")
    how.add_argument("--whole-cpus", action="store_true", help="round Guaranteed Pods up to whole CPUs, for pinning")
    how.add_argument("--floor-cpu", metavar="CPU", type=cores, default=0.025, help="least per Pod (25m)")
    how.add_argument("--floor-memory", metavar="SIZE", type=memory, default=250.0 * 2**20, help="least per Pod (250Mi)")
    for resource, quantity in (("cpu", cores), ("memory", memory)):
        how.add_argument(f"--{resource}-limit", choices=LIMIT_RULES, default="keep", help=LIMIT_HELP)
        for end in ("min", "max"):
            how.add_argument(
                f"--{end}-{resource}",
                metavar="[CONTAINER=]N",
                type=_bounded(quantity),
                action="append",
                default=[],
                help=f"never {'less' if end == 'min' else 'more'}, of one container or of all; may be repeated",
            )
    how.add_argument("--largest-node", metavar="CPU,SIZE", help="never recommend more, such as 16,64Gi")
    what = parser.add_argument_group("what to print")
    what.add_argument("-o", "--output", choices=OUTPUTS, default="table")
    what.add_argument("--sort", choices=SORTS, default="name", help="worst or largest first (default: name)")
    what.add_argument("--watch", metavar="TIME", type=duration, nargs="?", const=60.0, help="again every TIME (60s)")
    what.add_argument("--allow-hpa", action="store_true", help="also patch what an HPA scales by its requests")
    what.add_argument("--json", action="store_const", const="json", dest="output", help="same as --output json")
    _add_apply(parser)
    what.add_argument("--backtest", action="store_true", help="compare the methods on the recorded history")
    what.add_argument("--picture", metavar="FILE", help="with --backtest: draw it (needs matplotlib)")


def _add_apply(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("apply: resize running Pods in place (Kubernetes 1.33 and newer)")
    how.add_argument("--yes", action="store_true", help="do it; without this, only say what would be done")
    how.add_argument(
        "--every", metavar="TIME", type=duration, help="again and again; when stopped, put everything back"
    )
    how.add_argument("--keep", action="store_true", help="with --every: leave Pods as they are when stopped")
    how.add_argument("--restore", action="store_true", help="put back everything that the journal has, and end")
    how.add_argument("--journal", metavar="FILE", default="", help="default: ~/.local/state/carico/resizes.jsonl")
    how.add_argument("--max-changes", metavar="N", type=float, default=6.0, help="Pods per minute (default 6)")
    how.add_argument("--min-change", metavar="RATIO", type=ratio, default=0.1, help="leave smaller changes (10%%)")
    how.add_argument("--max-step", metavar="RATIO", type=ratio, default=0.5, help="lower by at most, at a time (50%%)")
    how.add_argument("--min-days", metavar="DAYS", type=float, default=0.0, help="only with so many days observed")
    how.add_argument("--allow-restart", action="store_true", help="also containers whose resizePolicy restarts them")


def read_words(given: argparse.Namespace) -> None:
    """`[apply] [WORKLOAD]`; raises ValueError."""
    words = list(given.words)
    given.apply = bool(words) and words[0] == "apply"
    words = words[1:] if given.apply else words
    if len(words) > 1:
        raise ValueError(f"one workload or pattern is expected, not {' '.join(words)}")
    given.workload = words[0] if words else None
    only_apply = ("yes", "every", "keep", "restore", "journal", "allow_restart")
    if not given.apply and (named := [name for name in only_apply if getattr(given, name)]):
        raise ValueError(f"--{named[0].replace('_', '-')}: only with `carico recommend apply`")
    if given.apply and not (0 < given.max_changes <= 1000 and 0 < given.max_step <= 1):
        raise ValueError("--max-changes: 1 to 1000 per minute; --max-step: above 0 and at most 1")
    if given.apply and given.output not in ("table", "json"):
        raise ValueError("apply: --output table or json")


def options(given: argparse.Namespace) -> "tuple[Options, NodeSize | None]":
    from carico_agent.recommend.method import Options
    from carico_agent.recommend.workload import NodeSize

    if given.half_life is not None and not (given.trace or given.prometheus):
        raise ValueError("--half-life: the agent's and VPA's histograms are made with 24h; use --trace or --prometheus")
    if given.picture and not given.backtest:
        raise ValueError("--picture: only with --backtest")
    if given.guaranteed and "none" in (given.cpu_limit, given.memory_limit):
        raise ValueError(
            "--guaranteed: a Guaranteed Pod has limits; leave out --cpu-limit none and --memory-limit none"
        )
    if given.watch and given.output in TEMPLATES:
        raise ValueError("--watch: only with tables and data; a patch is applied once")
    if not 0 <= given.safety <= 100:
        raise ValueError(f"--safety {given.safety:g}: 0 to 100 is expected")
    largest = None
    if given.largest_node:
        try:
            cpu, size = given.largest_node.split(",")
            largest = NodeSize(cores(cpu), memory(size))
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise ValueError(f"--largest-node {given.largest_node}: CPU,SIZE is expected, such as 16,64Gi") from error
    made = Options(
        given.percentile,
        given.margin,
        given.safety,
        given.variance,
        guaranteed=given.guaranteed,
        whole_cpus=given.whole_cpus,
        floor_cores=given.floor_cpu,
        floor_bytes=given.floor_memory,
        cpu_limit=given.cpu_limit,
        memory_limit=given.memory_limit,
        allowed=_allowed(given),
    )
    return made, largest


def _allowed(given: argparse.Namespace) -> "tuple[AllowedRange, ...]":
    from carico_agent.recommend.method import RESOURCES, AllowedRange

    made = []
    for resource in RESOURCES:
        made += [AllowedRange(name, resource, least=value) for name, value in getattr(given, f"min_{resource}")]
        made += [AllowedRange(name, resource, most=value) for name, value in getattr(given, f"max_{resource}")]
    for one in made:
        least = max(o.least for o in made if (o.container, o.resource) == (one.container, one.resource))
        most = min(o.most for o in made if (o.container, o.resource) == (one.container, one.resource))
        if least > most:
            raise ValueError(f"--min-{one.resource} is above --max-{one.resource} for {one.container}")
    return tuple(made)
