"""Which rights are needed, and whether we have them: asked of the API server itself."""

from dataclasses import dataclass

from carico_agent.lib.kube.client import KubeClient


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one kind of object.

    >>> str(Right("patch", "nodes", "status")), str(Right("get", "leases", group="coordination.k8s.io"))
    ('"patch" on "nodes/status"', '"get" on "leases.coordination.k8s.io"')
    """

    verb: str
    resource: str
    part: str = ""
    group: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        what = self.resource + (f"/{self.part}" if self.part else "") + (f".{self.group}" if self.group else "")
        return f'"{self.verb}" on "{what}"' + (f" in namespace {self.namespace}" if self.namespace else "")


AGENT = (
    Right("list", "nodes"),
    Right("watch", "nodes"),
    Right("patch", "nodes", "status"),
    Right("list", "pods"),
    Right("watch", "pods"),
)


def lease_rights(namespace: str) -> tuple[Right, ...]:
    """To write a node's placement Lease."""
    return tuple(Right(verb, "leases", "", "coordination.k8s.io", namespace) for verb in ("get", "create", "patch"))


async def allowed(client: KubeClient, right: Right) -> bool:
    """Whether these credentials have `right`. Everybody who is known may ask that."""
    attributes = {
        "verb": right.verb,
        "resource": right.resource,
        "group": right.group,
        "subresource": right.part,
        "namespace": right.namespace,
    }
    review = await client.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        },
    )
    return bool((review.get("status") or {}).get("allowed"))
