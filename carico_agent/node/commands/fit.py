"""say whether a Pod fits here, how many more fit, and which resource limits

Asks the agent of this node, or with --aggregator the whole cluster. WORKLOAD is what `carico status` shows
(namespace/name of the Deployment, StatefulSet, Job …); with -f the command reads it from a manifest. Exit code 1 when
the Pods do not fit. `kubectl carico fit` asks about every node, from any machine.

examples:
  carico fit shop/web
  carico fit shop/web --count 5
  carico fit -f pod.yaml --json
  carico fit -f deployment.yaml --kubeconfig ~/.kube/config --node node-7
  carico fit shop/web --aggregator 127.0.0.1:7420
"""

import argparse
import asyncio
import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from carico_agent.client import AgentClient, AgentError, AgentUnavailable
from carico_agent.command import add_config, add_socket, ask, complain, load_settings, trouble
from carico_agent.node.publish.words import duration

if TYPE_CHECKING:
    from carico_agent.lib.fit import Fit, Wanted
    from carico_agent.settings import Settings

MIN_LIKENESS = 0.75
"""Of two names, by difflib: below it a suggestion is a guess."""
BASIS = {
    "measured": "measured",
    "requests": "this workload has not run here: the answer uses its requests",
    "prior": "this workload has not run here: the answer assumes that one Pod keeps one core busy",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_socket(parser)
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD", help="a workload, like shop/web")
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="a manifest of a Pod, or of an object that creates Pods; - for stdin"
    )
    parser.add_argument("--count", type=int, default=1, metavar="N", help="how many Pods (default 1)")
    parser.add_argument(
        "--horizon",
        type=float,
        metavar="SECONDS",
        help="time for which the Pods must have room (default: their usual lifetime, at most a day)",
    )
    parser.add_argument("--aggregator", metavar="ADDR", help="ask this aggregation server about the whole cluster")
    parser.add_argument("--kubeconfig", metavar="FILE", help="also say what requests alone would allow on this node")
    parser.add_argument("--node", metavar="NAME", help="with --kubeconfig: the name of this node")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    if bool(given.workload) == bool(given.file) or given.count < 1:
        complain("give either WORKLOAD or -f FILE, and a --count of at least 1")
        return 2
    from carico_agent.lib.kube.errors import KubeError

    try:
        wanted = read_wanted(given.file) if given.file else _workload_alone(given.workload)
        if given.aggregator:
            return ask_cluster(given, settings, wanted)
        return ask_node(given, settings, wanted)
    except (AgentError, AgentUnavailable, KubeError, OSError, ValueError) as error:
        complain(trouble(error))
        return 1


def _workload_alone(workload: str) -> "Wanted":
    from carico_agent.lib.fit import Wanted

    return Wanted(workload)


def read_wanted(file: str, namespace: str = "default") -> "Wanted":
    """The first manifest in a file that makes Pods; raises OSError or ValueError."""
    import yaml

    from carico_agent.lib.fit import BadManifest, wanted_of

    text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        documents = [document for document in yaml.safe_load_all(text) if document]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not YAML: {error}") from error
    problems: list[str] = []
    for document in documents:
        try:
            return wanted_of(document, namespace)
        except BadManifest as error:
            problems.append(str(error))
    raise ValueError(f"{file}: {problems[0] if problems else 'empty'}")


def ask_node(given: argparse.Namespace, settings: "Settings", wanted: "Wanted") -> int:
    from carico_agent.lib.fit import fit_on_node

    asked = f"?horizon={given.horizon:g}" if given.horizon is not None else ""
    agent = ask(given)
    answer = agent.request("GET", f"/v1/workloads/{quote(wanted.workload)}{asked}")
    fit = fit_on_node(wanted, answer)
    near = near_names(wanted.workload, agent) if fit.basis != "measured" and not given.file else []
    alone = asyncio.run(by_requests(given, settings, wanted)) if given.kubeconfig else None
    fits = fit.fits >= given.count
    if given.json:
        body = {"workload": wanted.workload, "count": given.count, "fit": fits, **_body(fit)}
        print(json.dumps({**body, "requests_alone": None if alone is None else _body(alone)}, indent=2))
    else:
        print(describe(wanted.workload, given.count, fit, alone))
        if near:
            print(f"  did you mean {' or '.join(near)}?")
    return 0 if fits else 1


def near_names(workload: str, agent: AgentClient) -> list[str]:
    """Workloads of this node whose name, with or without its namespace, is like one that never ran here."""
    known = [str(row["workload"]) for row in agent.request("GET", "/v1/workloads")["workloads"]]
    if workload in known:  # it runs, and was not measured yet
        return []
    return similar(workload, known)


def similar(workload: str, known: Sequence[str]) -> list[str]:
    """At most three, the nearest first.

    >>> similar("web", ["shop/web", "shop/db"]), similar("wen", ["shop/web"]), similar("shop/wbe", ["shop/web"])
    (['shop/web'], [], ['shop/web'])
    >>> similar("shop/web", ["default/shop.web"]), similar("ml/train", ["shop/web"])
    (['default/shop.web'], [])
    """

    def likeness(name: str) -> float:
        short = name.rpartition("/")[2]
        if short == workload.replace("/", "."):  # an image `shop/web` outside Kubernetes, and a name without namespace
            return 1.0
        return difflib.SequenceMatcher(None, name if "/" in workload else short, workload).ratio()

    return sorted((name for name in known if likeness(name) >= MIN_LIKENESS), key=likeness, reverse=True)[:3]


def ask_cluster(given: argparse.Namespace, settings: "Settings", wanted: "Wanted") -> int:
    from carico_agent.federation.status import describe_fit, fetch_fit
    from carico_agent.lib.net.tls import TlsFiles

    federation = settings.federation
    tls = TlsFiles.mutual(federation.tls_ca, federation.tls_cert, federation.tls_key)
    found = asyncio.run(fetch_fit(given.aggregator, wanted.workload, tls, federation.tls_server_name))
    fits = bool(found["known"]) and int(found["total"]) >= given.count
    print(json.dumps({**found, "count": given.count, "fit": fits}, indent=2) if given.json else describe_fit(found))
    return 0 if fits else 1


async def by_requests(given: argparse.Namespace, settings: "Settings", wanted: "Wanted") -> "Fit | None":
    """What requests alone would allow on this node, by the API server."""
    import socket

    from carico_agent.lib.fit import fit_by_requests
    from carico_agent.lib.kube.client import KubeClient
    from carico_agent.lib.kube.pods import UNFINISHED
    from carico_agent.lib.kubernetes import access_of
    from carico_agent.settings import override

    name = given.node or settings.node.name or socket.gethostname()
    access = access_of(override(settings, "kubernetes", kubeconfig=given.kubeconfig).kubernetes)
    async with KubeClient(access, timeout_s=10.0) as client:
        node = await client.get(f"/api/v1/nodes/{name}")
        pods = await client.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name},{UNFINISHED}"})
    return fit_by_requests(wanted, node, pods.get("items") or ())


def _body(fit: "Fit") -> Mapping[str, Any]:
    return {"fits": round(fit.fits, 2), "limiting": fit.limiting, "basis": fit.basis, "horizon_s": fit.horizon_s}


def describe(workload: str, count: int, fit: "Fit", alone: "Fit | None") -> str:
    """For people."""
    verdict = "fits" if fit.fits >= count else "does not fit"
    limited = f", limited by {fit.limiting}" if fit.limiting else ""
    held = f" for the next {duration(fit.horizon_s)}" if fit.horizon_s else ""
    lines = [f"{count} × {workload} {verdict}: room for {fit.fits:.1f}{held}{limited} ({BASIS[fit.basis]})"]
    if alone is not None:
        lines.append(f"  by requests alone: {alone.fits:.0f}, limited by {alone.limiting}")
    return "\n".join(lines)
