"""remove what carico wrote on Kubernetes nodes

`carico kube remove NODE …` (or --all) deletes carico's annotations and its extended resource. Stop the agents first:
they would write them again. Where Pods still hold the resource, exactly what they hold stays until they end.

examples:
  carico kube remove worker-1 --kubeconfig ~/.kube/config
  carico kube remove --all
"""

import argparse
import asyncio

from carico_agent.command import add_config, complain, load_settings
from carico_agent.settings import KubernetesSettings, override


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["remove"])
    parser.add_argument("nodes", metavar="NODE", nargs="*")
    parser.add_argument("--all", action="store_true", help="every node that has carico's annotations or resource")
    add_config(parser)
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: the Pod's own service account")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    if bool(given.nodes) == given.all:
        complain("name the nodes, or give --all")
        return 2
    from carico_agent.lib.kube.errors import KubeError

    settings = override(settings, "kubernetes", kubeconfig=given.kubeconfig)
    try:
        return asyncio.run(_remove(settings.kubernetes, given.nodes))
    except KubeError as error:
        complain(str(error))
        return 1


async def _remove(settings: KubernetesSettings, nodes: list[str]) -> int:
    from carico_agent.lib.kube.client import KubeClient
    from carico_agent.lib.kubernetes import access_of
    from carico_agent.node.publish.node_cleanup import marked, remove

    async with KubeClient(access_of(settings)) as client:
        left = 0
        for node in nodes or await marked(client, settings.resource):
            held = await remove(client, node, settings.resource, settings.lease_namespace)
            left += held
            print(f"{node}: removed" + (f", but Pods still hold {held} of {settings.resource}" if held else ""))
    return int(left > 0)
