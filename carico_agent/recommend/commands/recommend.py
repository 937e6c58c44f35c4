"""print what each container should request, and why

Prints recommendations and never applies one. Sources: the agent on this node (default), traces of several nodes,
Prometheus, or a checkpoint of the Vertical Pod Autoscaler. "?" means that there are too few samples.

examples:
  carico recommend
  carico recommend shop/web --prometheus http://localhost:9090 --since 8d
  carico recommend --trace node1.trace.gz node2.trace.gz --output patch
  carico recommend 'web*' --method peak --guaranteed --whole-cpus
  carico recommend --prometheus http://localhost:9090 --backtest --picture backtest.png
  kubectl get vpacheckpoint -A -o json | carico recommend --checkpoint -
"""

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.command import add_socket, ask, complain
from carico_agent.lib.quantities import cores, duration, memory, ratio, share

if TYPE_CHECKING:  # numpy is loaded only when there is something to compute
    from carico_agent.recommend.method import Options
    from carico_agent.recommend.sources.histories import Found
    from carico_agent.recommend.workload import NodeSize

OUTPUTS = ("table", "json", "vpa", "patch", "resize", "checkpoint")
HALF_LIFE_S = 86_400.0
NOTHING_SEEN = "no container has been observed (after the agent starts, wait a minute)"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", metavar="WORKLOAD", nargs="?", help="a name, namespace/name or pattern")
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
    how.add_argument("--largest-node", metavar="CPU,SIZE", help="never recommend more, such as 16,64Gi")
    what = parser.add_argument_group("what to print")
    what.add_argument("--output", choices=OUTPUTS, default="table")
    what.add_argument("--json", action="store_const", const="json", dest="output", help="same as --output json")
    what.add_argument("--backtest", action="store_true", help="compare the methods on the recorded history")
    what.add_argument("--picture", metavar="FILE", help="with --backtest: draw it (needs matplotlib)")


def run(given: argparse.Namespace) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from carico_agent.lib.trace.file import BadTrace
    from carico_agent.recommend.checkpoint import BadCheckpoint
    from carico_agent.recommend.method import methods
    from carico_agent.recommend.sources.histories import NoHistory
    from carico_agent.recommend.sources.prometheus import PrometheusError

    known = methods()
    if given.method not in known:
        complain(f"--method {given.method}: known are {', '.join(known)}")
        return 2
    try:
        options, largest = _options(given)
    except ValueError as error:
        complain(str(error))
        return 2
    try:
        found = _select(_find(given), given.workload)
    except (BadTrace, NoHistory, PrometheusError, AgentError, AgentUnavailable) as error:
        complain(str(error))
        return 1
    except (OSError, UnicodeDecodeError, BadCheckpoint) as error:
        complain(f"{given.checkpoint}: {error}" if given.checkpoint and not isinstance(error, OSError) else str(error))
        return 1
    finally:
        _progress_done()
    found.largest = largest or found.largest
    if given.backtest:
        from carico_agent.recommend.commands._backtest import show

        return show(found, given)
    print(_print(given, found, options))
    return 0


def _options(given: argparse.Namespace) -> "tuple[Options, NodeSize | None]":
    from carico_agent.recommend.method import Options
    from carico_agent.recommend.workload import NodeSize

    if given.half_life is not None and not (given.trace or given.prometheus):
        raise ValueError("--half-life: the agent's and VPA's histograms are made with 24h; use --trace or --prometheus")
    if given.picture and not given.backtest:
        raise ValueError("--picture: only with --backtest")
    if not 0 <= given.safety <= 100:
        raise ValueError(f"--safety {given.safety:g}: 0 to 100 is expected")
    largest = None
    if given.largest_node:
        try:
            cpu, size = given.largest_node.split(",")
            largest = NodeSize(cores(cpu), memory(size))
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise ValueError(f"--largest-node {given.largest_node}: CPU,SIZE is expected, such as 16,64Gi") from error
    options = Options(
        given.percentile,
        given.margin,
        given.safety,
        given.variance,
        guaranteed=given.guaranteed,
        whole_cpus=given.whole_cpus,
        floor_cores=given.floor_cpu,
        floor_bytes=given.floor_memory,
    )
    return options, largest


def _find(given: argparse.Namespace) -> "Found":
    from carico_agent.recommend.series import TAIL
    from carico_agent.recommend.sources.histories import from_agent, from_checkpoint, from_traces

    half_life_s = given.half_life or HALF_LIFE_S
    since_s = given.since or 8 * 86_400.0
    keep = max(int(since_s / given.step), TAIL) if given.backtest else TAIL
    if given.trace:
        return from_traces(given.trace, half_life_s, keep)
    if given.checkpoint:
        return from_checkpoint(_read(given.checkpoint))
    if given.prometheus:
        from carico_agent.recommend.sources.prometheus import Prometheus
        from carico_agent.recommend.sources.prometheus_history import from_prometheus

        token = _read(given.token_file).strip() if given.token_file else None
        server = Prometheus(given.prometheus, given.timeout, token)
        return from_prometheus(
            server, given.workload, time.time(), since_s, given.step, half_life_s, keep, progress=_progress
        )
    try:
        answer = ask(given).request("GET", "/v1/history/containers")
    except AgentError as error:
        if error.status == 404:
            raise AgentUnavailable(
                "the agent on this node keeps no history of containers (an older version?)"
            ) from error
        raise
    return from_agent(answer)


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    with open(path, encoding="utf-8") as file:
        return file.read()


def _progress(what: str, share: float) -> None:
    """On a terminal one line that is written over."""
    if sys.stderr.isatty():
        print(f"\rcarico: reading {what}: {share:4.0%}", end="", file=sys.stderr, flush=True)


def _progress_done() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _select(found: "Found", wanted: str | None) -> "Found":
    from fnmatch import fnmatchcase

    from carico_agent.recommend.sources.histories import NoHistory

    if wanted:
        found.histories = {
            key: history
            for key, history in found.histories.items()
            if fnmatchcase(key.workload.full_name if "/" in wanted else key.workload.name, wanted)
        }
    if not found.histories:
        raise NoHistory(f"no container of {wanted} has been observed" if wanted else NOTHING_SEEN)
    return found


def _print(given: argparse.Namespace, found: "Found", options: "Options") -> str:
    from carico_agent.recommend.commands._output import FORMATS
    from carico_agent.recommend.commands._rows import checkpoints, recommendations

    if given.output == "checkpoint":
        return checkpoints(found)
    return FORMATS[given.output](recommendations(found, given.method, options))
