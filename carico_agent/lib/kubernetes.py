"""Kubernetes for commands and daemons: how to reach it by the settings, and what `carico doctor` finds there."""

from carico_agent.lib.kube.access import Access, access_to
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.clock import describe
from carico_agent.lib.kube.errors import KubeError, Refused
from carico_agent.lib.kube.rights import AGENT, Right, allowed, lease_rights
from carico_agent.lib.kube_settings import KubernetesSettings


def access_of(settings: KubernetesSettings) -> Access:
    """How these settings say to reach the API server; raises BadAccess."""
    return access_to(settings.kubeconfig, settings.context)


async def examine(settings: KubernetesSettings, node: str) -> list[tuple[str, str, str]]:
    """For `carico doctor`: what, what about it, and the remedy (none when it is fine)."""
    try:
        async with KubeClient(access_of(settings), timeout_s=5.0) as client:
            version = (await client.get("/version")).get("gitVersion", "")
            rights = [await _examine_right(client, right) for right in AGENT]
            rights += await _examine_lease(client, settings)
            server = ("kubernetes", f"{client.access.server} {version}", "")
            return [server, *_examine_clock(client), *rights, await _examine_node(client, node)]
    except KubeError as error:
        return [("kubernetes", str(error), "mend the kubeconfig or the service account; see deploy/README.md")]


def _examine_clock(client: KubeClient) -> list[tuple[str, str, str]]:
    wrong = describe(client.clock_skew_s)
    return [("clock", wrong, "let NTP set it (chronyd, systemd-timesyncd), here or there")] if wrong else []


async def _examine_right(client: KubeClient, right: Right) -> tuple[str, str, str]:
    if await allowed(client, right):
        return "right", f"{right} is granted", ""
    return "right", f"missing right: {right}", f"grant {right} to this user (deploy/base/10-rbac.yaml does)"


async def _examine_lease(client: KubeClient, settings: KubernetesSettings) -> list[tuple[str, str, str]]:
    """No remedy: without extenders it is not needed."""
    missing = [
        right
        for right in lease_rights(settings.lease_namespace)
        if settings.lease_namespace and not await allowed(client, right)
    ]
    return [("right", f"missing right: {right} (only for clusters with carico extender)", "") for right in missing]


async def _examine_node(client: KubeClient, node: str) -> tuple[str, str, str]:
    try:
        found = await client.get("/api/v1/nodes", {"fieldSelector": f"metadata.name={node}", "limit": "1"})
    except Refused as error:
        return "kubernetes node", str(error), "grant list on nodes"
    if found.get("items"):
        return "kubernetes node", node, ""
    return "kubernetes node", f'nodes "{node}" not found', "give its name with --node or NODE_NAME"
