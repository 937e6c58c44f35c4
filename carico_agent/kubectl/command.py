"""how many more Pods fit on each node of the cluster, by what is measured, beside what is requested

Works with your kubeconfig alone and writes nothing, except with --evict. It reads Nodes with carico's annotations, Pods
and placement Leases.
Without the right to list nodes it shows the Pods of your namespace. An expired number counts as none.

`fit` says how many more of a workload (or of a manifest's Pod) fit on each node; exit code 1 when fewer than --count
do. `why` says which nodes refuse a waiting Pod; exit code 1 while it waits.

`drain-check` says which Pods of a node would fit nowhere else, by requests and by use, by the rules of kube-scheduler;
exit code 1 when a Pod would be left over. `consolidate` says which nodes are not needed and which moves empty them.
With --evict, and only then, it cordons those nodes and evicts their Pods one at a time; it stops when a Pod finds no
room.

--sort sorts by a column (--sort cpu-use, or --sort cpu-use% by per cent); --above and --below select rows (--above
cpu=80%, --below pod-capacity=1); cpu and memory alone mean measured use. Percentages refer to the node; with --pods,
those of use refer to the requests.

examples:
  kubectl carico
  kubectl carico -o wide -L topology.kubernetes.io/zone --sort memory-use%
  kubectl carico --above cpu=80% --above memory-requests=90%
  kubectl carico --pods -n shop --sort cpu-use
  kubectl carico fit shop/web --count 20
  kubectl carico fit -f deployment.yaml -o json
  kubectl carico why web-6c5d9b7f8d-x7k2p -n shop
  kubectl carico drain-check node-7
  kubectl carico drain-check --all
  kubectl carico consolidate -l pool=batch
  kubectl carico consolidate --evict --max-nodes 1
"""

import argparse
import asyncio

from carico_agent import __version__
from carico_agent.command import complain, to_exit_code, trouble
from carico_agent.kubectl.tables import Threshold, threshold
from carico_agent.lib.kube.names import RESOURCE
from carico_agent.lib.kube.pods import is_name
from carico_agent.lib.quantities import duration


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="kubectl carico", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"carico {__version__}")
    actions = ("nodes", "pods", "fit", "why", "drain-check", "consolidate")
    top.add_argument("action", nargs="?", choices=actions, default="nodes", help="default: nodes; pods is --pods")
    top.add_argument(
        "subject", nargs="?", metavar="WORKLOAD|POD|NODE", help="what fits, why it waits, or what is drained"
    )
    _add_access(top)
    _add_table(top)
    top.add_argument(
        "-f", "--filename", metavar="FILE", help="fit: a manifest of a Pod or of what makes Pods; - for stdin"
    )
    top.add_argument("--count", type=int, default=1, metavar="N", help="fit: how many of them (default 1)")
    top.add_argument("--extender", default="", metavar="URL", help="why: ask it there (default: its Service)")
    _add_drain(top)
    return top


def _add_drain(top: argparse.ArgumentParser) -> None:
    top.add_argument("--all", action="store_true", help="drain-check: every node, one after the other")
    top.add_argument("--tries", type=int, default=16, metavar="N", help="drain-check: orders to try (default 16)")
    top.add_argument("--in-order", action="store_true", help="drain-check: Pods go one at a time, by priority and name")
    top.add_argument("--evict", action="store_true", help="consolidate: carry it out, one eviction at a time")
    top.add_argument("--max-nodes", type=int, metavar="N", help="consolidate: free at most so many nodes")
    top.add_argument("--min-nodes", type=int, default=1, metavar="N", help="consolidate: keep so many (default 1)")
    top.add_argument(
        "--wait", type=duration, default=120.0, metavar="TIME", help="consolidate: per eviction (default 120s)"
    )
    top.add_argument("--delete-emptydir-data", action="store_true", help="consolidate: Pods with an emptyDir may move")


def _add_access(top: argparse.ArgumentParser) -> None:
    top.add_argument("--kubeconfig", default="", metavar="FILE", help="default: $KUBECONFIG, or ~/.kube/config")
    top.add_argument("--context", default="", metavar="NAME", help="a context of it")
    top.add_argument("-n", "--namespace", default="", metavar="NAME", help="only Pods of this namespace")
    top.add_argument("-A", "--all-namespaces", action="store_true", help="all Pods (default, except with --pods)")
    top.add_argument("--carico-namespace", default="carico", metavar="NAME", help="where the placement Leases are")
    top.add_argument("--resource", default=RESOURCE, metavar="NAME", help=f"extended resource (default {RESOURCE})")


def _add_table(top: argparse.ArgumentParser) -> None:
    top.add_argument("--pods", action="store_true", help="Pods and their containers instead of nodes")
    top.add_argument("-l", "--selector", default="", metavar="LABELS", help="only nodes with these labels")
    top.add_argument("-L", "--label-columns", action="append", default=[], metavar="LABEL,…", help="a column per label")
    top.add_argument("--sort", default="", metavar="COLUMN", help="by this column; COLUMN%% by per cent")
    top.add_argument("--reverse", action="store_true", help="the other way round")
    top.add_argument("--above", action="append", default=[], metavar="COLUMN=N", help="only rows above, as in cpu=80%%")
    top.add_argument("--below", action="append", default=[], metavar="COLUMN=N", help="only rows below")
    top.add_argument("-o", "--output", choices=("wide", "json", "yaml"), default="", help="default: a table")


def main(argv: list[str] | None = None) -> int:
    """`kubectl-carico`, which kubectl runs as `kubectl carico`; returns the exit code."""
    return to_exit_code(lambda: _run(argv))


def _run(argv: list[str] | None) -> int:
    given = _usual(parser().parse_intermixed_args(argv))  # options may stand before `why`
    if problem := _problem(given):
        complain(problem)
        return 2
    return _answer(given)


def _usual(given: argparse.Namespace) -> argparse.Namespace:
    """What users of kubectl are used to write: `pods`, `why pod/NAME`, `drain-check node/NAME`, `-L a,b`."""
    if given.action == "pods":
        given.action, given.pods = "nodes", True
    if given.action == "drain-check" and given.subject:
        given.subject = given.subject.removeprefix("nodes/").removeprefix("node/")
    if given.action == "why" and given.subject:
        given.subject = given.subject.removeprefix("pods/").removeprefix("pod/")
    given.label_columns = [label for text in given.label_columns for label in text.split(",") if label]
    return given


def _problem(given: argparse.Namespace) -> str:
    """What is wrong with the command line."""
    if given.action == "fit" and bool(given.subject) == bool(given.filename):
        return "fit: give either WORKLOAD or -f FILE"
    if given.action == "why" and not given.subject:
        return "why: give the name of a Pod"
    if given.action == "nodes" and given.subject:
        return f"{given.subject!r}: {'pods' if given.pods else 'nodes'} takes no name; use -l for labels of nodes"
    if given.action == "why" and not is_name(given.subject):
        return f"{given.subject!r} is no name of a Pod; give its namespace with -n"
    if problem := _drain_problem(given):
        return problem
    if given.namespace and not is_name(given.namespace):
        return f"{given.namespace!r} is no namespace"
    return "--count must be at least 1" if given.count < 1 else ""


def _drain_problem(given: argparse.Namespace) -> str:
    if given.action == "drain-check" and bool(given.subject) == given.all:
        return "drain-check: give either the name of a node or --all"
    if given.action == "consolidate" and given.subject:
        return f"{given.subject!r}: consolidate takes no name; use -l for labels of nodes"
    if given.evict and given.action != "consolidate":
        return f"--evict: only with consolidate; for one node use `kubectl drain {given.subject or 'NODE'}`"
    if given.tries < 1 or given.min_nodes < 1 or (given.max_nodes is not None and given.max_nodes < 1):
        return "--tries, --min-nodes and --max-nodes must be at least 1"
    return ""


def _answer(given: argparse.Namespace) -> int:
    from carico_agent.lib.kube.errors import KubeError

    try:
        thresholds = [*map(threshold, given.above), *(threshold(text, below=True) for text in given.below)]
        return asyncio.run(_ask(given, thresholds))
    except ValueError as error:
        complain(str(error))
        return 2
    except OSError as error:
        complain(trouble(error))
        return 1
    except KubeError as error:
        complain(str(error))
        return 1


async def _ask(given: argparse.Namespace, thresholds: list[Threshold]) -> int:
    from carico_agent.kubectl import answers
    from carico_agent.kubectl.reading import Scope
    from carico_agent.lib.kube.access import of_user
    from carico_agent.lib.kube.client import KubeClient
    from carico_agent.lib.net.buckets import TokenBucket

    access = of_user(given.kubeconfig, given.context)
    everything = given.all_namespaces or (not given.pods and not given.namespace)
    own = given.namespace or access.namespace
    scope = Scope(own, "" if everything else own, given.selector, given.resource, given.carico_namespace)
    async with KubeClient(access, TokenBucket(per_s=50.0, burst=300), timeout_s=30.0) as client:
        if given.action in ("drain-check", "consolidate"):
            from carico_agent.kubectl.drain.answers import show_consolidation, show_drain

            show_plan = show_drain if given.action == "drain-check" else show_consolidation
            return await show_plan(client, scope, given)
        if given.action == "why":
            return await answers.show_why(client, scope, given)
        show = answers.show_fit if given.action == "fit" else answers.show_nodes
        return await show(client, scope, given, thresholds)
