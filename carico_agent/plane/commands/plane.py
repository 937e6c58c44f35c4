"""diagnose the control plane: how busy each part is, which clients cost most, and how many seats it needs

Without an action it reads an API server's metrics twice and prints a diagnosis. `solve` sizes by hand, from a
table. As a service (--serve) it also holds seats back, if the settings ask for it: see [plane] in the configuration.

examples:
  carico plane --kubeconfig ~/.kube/config
  carico plane --kubeconfig ~/.kube/config --cores 8 --interval 60    from a laptop; the server has 8 cores
  carico plane --component etcd=http://127.0.0.1:2381/metrics --watch
  carico plane --component kube-scheduler=https://127.0.0.1:10259/metrics,trust=loopback
  carico plane --audit /var/log/kubernetes/audit.log --limit-lists | kubectl apply --dry-run=server -f -
  carico plane --serve --seats write
  carico plane solve --table f.csv --requests 60000 --core-seconds 300 --window 60 --cores 6 --availability 0.999
  carico plane solve --components plane.toml --cores 12
"""

import argparse
import asyncio
import json
import logging
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

from carico_agent.command import add_config, complain, load_settings
from carico_agent.plane.commands import _solve as _plane_solve
from carico_agent.plane.settings import COMPONENTS
from carico_agent.settings import Settings, override


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="default: as kubectl chooses ($KUBECONFIG, ~/.kube/config), else the Pod's own service account; "
        "a service (--serve) uses the service account",
    )
    parser.add_argument(
        "--component",
        metavar="NAME=URL[,...]",
        type=component,
        action="append",
        help=f"metrics of {', '.join(COMPONENTS)}; over https with the kubeconfig's credentials, or those that follow "
        "the address: ca=FILE, token=FILE, certificate=FILE,key=FILE, trust=loopback",
    )
    parser.add_argument(
        "--interval", metavar="S", type=_plane_solve.positive, default=10.0, help="time between two readings (10)"
    )
    parser.add_argument(
        "--cores",
        metavar="C",
        type=_plane_solve.positive,
        help="cores of the control plane's machine (default: as many as this one has)",
    )
    parser.add_argument(
        "--audit", metavar="FILE", help="an audit log of the API server: the costliest users, and the clients that list"
    )
    parser.add_argument(
        "--limit-lists",
        action="store_true",
        help="with --audit: print a FlowSchema and a PriorityLevelConfiguration for the client that lists most",
    )
    parser.add_argument("--plot", metavar="FILE", help="a picture of the concurrency curve learned so far")
    parser.add_argument("--watch", action="store_true", help="continue, with one diagnosis per interval")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    parser.add_argument("--serve", action="store_true", help="run as a service")
    parser.add_argument("--seats", choices=["off", "recommend", "write"], help="with --serve: what to do with seats")
    parser.add_argument("--listen", metavar="ADDR", help="with --serve: for /metrics, on loopback")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action")
    _plane_solve.arguments(
        actions.add_parser(
            "solve",
            help="seats and queue from a table, or cores for all components",
            description=_plane_solve.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )


def component(text: str) -> tuple[str, str]:
    from carico_agent.plane.endpoints import BadEndpoint, parse_endpoint

    name, equals, rest = text.partition("=")
    if name not in COMPONENTS or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=URL is expected, NAME one of {', '.join(COMPONENTS)}")
    try:
        parse_endpoint(rest)
    except BadEndpoint as bad:
        raise argparse.ArgumentTypeError(str(bad)) from None
    return name, rest


def run(given: argparse.Namespace) -> int:
    if given.action == "solve":
        return _plane_solve.run(given)
    if given.seats == "write" and not given.serve:
        complain("--seats write needs --serve: only the service keeps a reserve, and takes it back when it ends")
        return 2
    if given.listen is not None and not given.serve:
        complain("--listen needs --serve")
        return 2
    if given.limit_lists and not given.audit:
        complain("--limit-lists needs --audit FILE: the metrics do not name clients")
        return 2
    settings = load_settings(given.config)
    if settings is None:
        return 2
    settings = override(settings, "kubernetes", kubeconfig=given.kubeconfig)
    others = {**settings.plane.components, **dict(given.component or ())}
    settings = override(settings, "plane", components=others, seats=given.seats, listen=given.listen, cores=given.cores)
    from carico_agent.lib.kube.errors import KubeError

    try:
        return serve(settings) if given.serve else asyncio.run(diagnose_now(settings, given))
    except (KubeError, OSError, ValueError) as error:
        complain(str(error))
        return 1


def serve(settings: Settings) -> int:
    from carico_agent.plane.daemon import PlaneServer

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")

    async def whole_life() -> None:
        await PlaneServer(settings).run()

    asyncio.run(whole_life())
    return 0


async def diagnose_now(settings: Settings, given: argparse.Namespace) -> int:
    from carico_agent.lib.kube.access import of_user
    from carico_agent.lib.kube.client import KubeClient
    from carico_agent.plane.commands._lists import AuditReport, minor_version, print_limit
    from carico_agent.plane.daemon import load_curve
    from carico_agent.plane.diagnosis import describe
    from carico_agent.plane.observer import Observer

    async with KubeClient(of_user(settings.kubernetes.kubeconfig, settings.kubernetes.context)) as client:
        observer = Observer(client, settings.plane)
        report = AuditReport(given.audit, await minor_version(client)) if given.audit else None
        if given.limit_lists and report is not None:
            return await print_limit(client, report.lists, observer.cores)
        load_curve(observer, settings.state_path)
        async with aclosing(observer):
            first = await observer.observe()
            while first.fresh or given.watch:
                await asyncio.sleep(given.interval)
                seen = (await observer.observe()).diagnosis
                body: dict[str, Any] = seen.as_json() | (report.as_json() if report else {})
                text = json.dumps(body) if given.json else describe(seen) + (report.describe() if report else "")
                print(text, flush=True)
                if given.plot:
                    plot(seen.curve, Path(given.plot))
                if not given.watch:
                    return 0
                if not given.json:
                    print(flush=True)
    complain(first.diagnosis.remedy)
    return 1


def plot(curve: list[tuple[float, float]], path: Path) -> None:
    """The curve as a picture; matplotlib is needed for this only."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot([x for x, _ in curve], [f for _, f in curve], "o-")
    axes.set(xlabel="requests executing at once", ylabel="cores used", xlim=(0, None), ylim=(0, None))
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
