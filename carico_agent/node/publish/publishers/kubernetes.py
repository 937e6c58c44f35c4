"""The node's number on its Node object; see ../node_publisher.py."""

from carico_agent.node.publish.publisher import Publisher, PublisherContext


async def open_publisher(context: PublisherContext) -> Publisher | None:
    """None when the settings ask for no Kubernetes. Raises BadAccess when they cannot work."""
    settings = context.settings().kubernetes
    if not settings.enabled and not settings.kubeconfig:
        return None
    from carico_agent.node.publish.node_publisher import open_node_publisher  # 0.5 MB, so only where it is wanted

    return await open_node_publisher(context)
