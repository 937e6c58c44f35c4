"""print what each container should request, and why

Prints recommendations. Only `carico recommend apply --yes` changes anything: it resizes running Pods in place where
their node has room, notes each change in a journal, and takes back what goes wrong.

Sources: the agent on this node (default), traces of several nodes, Prometheus, or a checkpoint of the Vertical Pod
Autoscaler. --cluster completes each of them with what the API server knows. "?" means that there are too few samples.

examples:
  carico recommend
  carico recommend shop/web --prometheus http://localhost:9090 --since 8d
  carico recommend --trace node1.trace.gz node2.trace.gz --output patch
  carico recommend --cluster -n 'shop*' --sort memory-savings --output wide
  carico recommend --cpu-limit none --memory-limit proportional --max-memory app=4Gi --output patch
  carico recommend --watch 5m
  carico recommend apply -n shop
  carico recommend apply -n shop --yes --every 5m
  carico recommend apply --restore
  carico recommend 'web*' --method peak --guaranteed --whole-cpus
  carico recommend --prometheus http://localhost:9090 --backtest --picture backtest.png
  kubectl get vpacheckpoint -A -o json | carico recommend --checkpoint -
"""

import argparse
import os
import sys
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.command import ask, complain, trouble
from carico_agent.recommend.commands._arguments import TEMPLATES, arguments, options, read_words

if TYPE_CHECKING:  # numpy is loaded only when there is something to compute
    from carico_agent.recommend.advice import Recommendation
    from carico_agent.recommend.method import Options
    from carico_agent.recommend.sources.histories import Found
    from carico_agent.recommend.workload import NodeSize, OwnerObject

__all__ = ["arguments", "run"]

HALF_LIFE_S = 86_400.0
NOTHING_SEEN = "no container has been observed (after the agent starts, wait a minute)"


def run(given: argparse.Namespace) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from carico_agent.lib.kube.errors import KubeError
    from carico_agent.lib.trace.file import BadTrace
    from carico_agent.recommend.checkpoint import BadCheckpoint
    from carico_agent.recommend.method import methods
    from carico_agent.recommend.sources.histories import NoHistory
    from carico_agent.recommend.sources.prometheus import PrometheusError

    try:
        read_words(given)
    except ValueError as error:
        complain(str(error))
        return 2
    known = methods()
    if given.method not in known:
        complain(f"--method {given.method}: known are {', '.join(known)}")
        return 2
    try:
        how, largest = options(given)
        _check_horizon(given, known[given.method].horizon_s)
    except ValueError as error:
        complain(str(error))
        return 2
    if given.apply:
        from carico_agent.recommend.commands._apply import show_apply

        return show_apply(given, lambda: _rows(given, how, largest))
    while True:
        try:
            code = _once(given, how, largest)
        except (BadTrace, NoHistory, PrometheusError, AgentError, AgentUnavailable, KubeError) as error:
            complain(str(error))
            code = 1
        except (OSError, UnicodeDecodeError, BadCheckpoint) as error:
            named = given.checkpoint and not isinstance(error, OSError)
            complain(f"{given.checkpoint}: {error}" if named else trouble(error))
            code = 1
        finally:
            _progress_done()
        if given.watch is None:
            return code
        time.sleep(given.watch)


def _check_horizon(given: argparse.Namespace, horizon_s: float) -> None:
    from carico_agent.recommend.method import TEMPLATE_HORIZON_S

    if given.output in TEMPLATES and horizon_s < TEMPLATE_HORIZON_S:
        raise ValueError(
            f"--method {given.method} answers for the next {horizon_s / 60:g} minutes, and a template stays for days; "
            "use --method vpa or peak, or --output resize"
        )


def _rows(given: argparse.Namespace, how: "Options", largest: "NodeSize | None") -> "list[Recommendation]":
    """What `apply` carries out: owners must be known for certain."""
    from carico_agent.recommend.commands._rows import recommendations

    given.cluster = True
    found = _select(_completed(_find(given), given), given)
    found.largest = largest or found.largest
    return recommendations(found, given.method, how)


def _once(given: argparse.Namespace, how: "Options", largest: "NodeSize | None") -> int:
    found = _select(_completed(_find(given), given), given)
    found.largest = largest or found.largest
    if given.backtest:
        from carico_agent.recommend.commands._backtest import show

        return show(found, given)
    if given.watch and sys.stdout.isatty():
        print("\033[H\033[2J", end="")
    print(_print(given, found, how), flush=bool(given.watch))
    return 0


def _completed(found: "Found", given: argparse.Namespace) -> "Found":
    """With what the API server knows, where the user asks for it."""
    if not (given.cluster or given.selector or given.kubeconfig or given.context):
        return found
    import asyncio

    from carico_agent.lib.kube.access import of_user
    from carico_agent.lib.kube.client import KubeClient
    from carico_agent.lib.net.buckets import TokenBucket
    from carico_agent.recommend.sources.cluster import KnownPods, complete, read_pods

    async def read() -> KnownPods:
        access = of_user(given.kubeconfig, given.context)
        async with KubeClient(access, TokenBucket(per_s=50.0, burst=300), timeout_s=30.0) as client:
            return await read_pods(client, given.selector)

    known = asyncio.run(read())
    for note in known.notes:
        print(f"note: {note}", file=sys.stderr)
    return complete(found, known, bool(given.selector))


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


def _select(found: "Found", given: argparse.Namespace) -> "Found":
    from carico_agent.recommend.sources.histories import NoHistory

    wanted = given.workload
    found.histories = {key: one for key, one in found.histories.items() if _is_wanted(key.workload, given)}
    if not found.histories:
        narrowed = wanted or ", ".join([*given.namespace, *(f"not {name}" for name in given.not_namespace)])
        raise NoHistory(f"no container of {narrowed} has been observed" if narrowed else NOTHING_SEEN)
    return found


def _is_wanted(workload: "OwnerObject", given: argparse.Namespace) -> bool:
    def matches(patterns: list[str]) -> bool:
        return any(fnmatchcase(workload.namespace, pattern) for pattern in patterns)

    if (given.namespace and not matches(given.namespace)) or matches(given.not_namespace):
        return False
    wanted = given.workload
    return not wanted or fnmatchcase(workload.full_name if "/" in wanted else workload.name, wanted)


def _print(given: argparse.Namespace, found: "Found", how: "Options") -> str:
    from carico_agent.recommend.commands import _exports
    from carico_agent.recommend.commands._output import FORMATS
    from carico_agent.recommend.commands._rows import checkpoints, recommendations
    from carico_agent.recommend.savings import sort

    if given.output == "checkpoint":
        return checkpoints(found)
    rows = sort(recommendations(found, given.method, how), given.sort)
    if given.output in ("csv", "yaml"):
        return _exports.as_csv(rows) if given.output == "csv" else _exports.as_yaml(rows)
    if given.output not in TEMPLATES or given.allow_hpa:
        return _exports.json_patches(rows, found) if given.output == "json-patch" else FORMATS[given.output](rows)
    comments, rows = _without_scaled(rows)
    text = _exports.json_patches(rows, found) if given.output == "json-patch" else FORMATS[given.output](rows)
    return "\n".join([*comments, *([text] if text else [])])


def _without_scaled(rows: "list[Recommendation]") -> "tuple[list[str], list[Recommendation]]":
    """Without what an HPA scales by its requests: the number of replicas would change with them."""
    scaled = {row.workload.full_name: row.hpa for row in rows if row.hpa}
    comments = [f"# {name}: {hpa}; to patch it all the same: --allow-hpa" for name, hpa in scaled.items()]
    return comments, [row for row in rows if not row.hpa]
