"""Lease objects (coordination.k8s.io/v1): where they are, and what one looks like."""

from carico_agent.lib.kube.client import Object


def leases_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def lease_object(meta: Object, spec: Object) -> Object:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
