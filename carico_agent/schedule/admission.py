"""The admission webhook: an AdmissionReview of a binding that somebody else makes, answered by `Extender.admit`.

With it an unmodified kube-scheduler cannot bind a Pod to a node whose number has just fallen, either: it is decided
while the API server waits with the binding. See deploy/admission/bindings.yaml.
"""

from carico_agent.kube.client import Object
from carico_agent.kube.pods import is_name
from carico_agent.schedule.extender import Extender


async def review(extender: Extender, asked: Object) -> Object:
    """AdmissionReview → AdmissionReview. Raises ValueError if it is none of a binding, KubeError if nobody can know."""
    try:
        version, request = asked["apiVersion"], asked["request"]
        review_uid, dry_run, binding = request["uid"], request.get("dryRun"), request["object"]
        kinds = asked["kind"], binding["kind"]
        meta = binding["metadata"]
        uid, namespace = meta.get("uid") or "", request["namespace"]
        name, node = meta.get("name") or request["name"], binding["target"]["name"]
    except (KeyError, TypeError, AttributeError):
        raise ValueError("an AdmissionReview of a Binding is expected") from None
    texts = all(isinstance(text, str) for text in (version, review_uid, uid))
    if kinds != ("AdmissionReview", "Binding") or not texts or not all(map(is_name, (namespace, name, node))):
        raise ValueError("an AdmissionReview of a Binding is expected")
    why = None if dry_run else await extender.admit(namespace, name, uid, node)
    response: Object = {"uid": review_uid, "allowed": why is None}
    if why is not None:
        response["status"] = {"code": 409, "reason": "Conflict", "message": f"carico: {node}: {why}"}
    return {"apiVersion": version, "kind": "AdmissionReview", "response": response}
