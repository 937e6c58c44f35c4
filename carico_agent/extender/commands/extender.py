"""answer kube-scheduler's requests for nodes with room, and check every binding

Answers filter, prioritize and bind from what the agents publish on their nodes. With admission_listen it also answers
the API server's webhook before each binding of a Pod that requests carico.dev/pods, by whichever scheduler. deploy/ has
the manifests, and configurations of kube-scheduler that use it.

examples:
  carico extender --kubeconfig ~/.kube/config --listen 127.0.0.1:7401
  carico extender --page 127.0.0.1:9752    and look at the cluster at http://127.0.0.1:9752/
  carico extender --policies
"""

import argparse
import asyncio
import logging
import sys

from carico_agent.command import add_config, complain, load_settings
from carico_agent.settings import BadSettings, override


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--listen", metavar="HOST:PORT", help="listen here instead of at the configured address")
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: the Pod's own service account")
    parser.add_argument("--page", metavar="HOST:PORT", help="serve the cluster's page here")
    parser.add_argument("--policies", action="store_true", help="list the policies and their settings, and stop")
    parser.add_argument("--verbose", action="store_true", help="log more")


def run(given: argparse.Namespace) -> int:
    if given.policies:
        from carico_agent.extender.policies import describe

        print(describe(), end="")
        return 0
    settings = load_settings(given.config)
    if settings is None:
        return 2
    logging.basicConfig(
        level=logging.DEBUG if given.verbose else logging.INFO,
        stream=sys.stderr,
        format="%(levelname)s %(name)s: %(message)s",
    )
    settings = override(settings, "extender", listen=given.listen)
    settings = override(settings, "cluster_page", listen=given.page)
    settings = override(settings, "kubernetes", kubeconfig=given.kubeconfig)
    from carico_agent.extender.daemon import ExtenderServer
    from carico_agent.lib.kube.errors import BadAccess

    async def whole_life() -> None:
        await ExtenderServer(settings).run()

    try:
        asyncio.run(whole_life())
    except BadSettings as bad:
        for error in bad.errors:
            complain(error)
        return 2
    except (OSError, ValueError, BadAccess) as error:
        complain(str(error))
        return 1
    return 0
