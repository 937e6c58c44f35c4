"""What the API server asks about a binding before it makes it: an AdmissionReview, answered by `Extender.admit`.

With it an unmodified kube-scheduler cannot bind a Pod to a node whose number has just fallen, either: the last word is
said while the API server waits with the binding. See deploy/admission/bindings.yaml.
"""

from carico_agent.kube.client import Object
from carico_agent.schedule.extender import Extender


async def review(extender: Extender, asked: Object) -> Object:
    """AdmissionReview → AdmissionReview. Raises ValueError when it is none of a binding."""
    request, binding, node = _binding(asked)
    meta = binding.get("metadata") or {}
    name = str(meta.get("name") or request.get("name") or "")
    namespace = str(request.get("namespace") or meta.get("namespace") or "")
    why = None if request.get("dryRun") else await extender.admit(namespace, name, str(meta.get("uid") or ""), node)
    said: Object = {"uid": request["uid"], "allowed": why is None}
    if why is not None:
        said["status"] = {"code": 409, "reason": "Conflict", "message": f"carico: {node}: {why}"}
    return {"apiVersion": asked["apiVersion"], "kind": "AdmissionReview", "response": said}


def _binding(asked: Object) -> tuple[Object, Object, str]:
    """The request, the Binding in it, and the node it names."""
    try:
        request, binding = asked["request"], asked["request"]["object"]
        if asked["kind"] != "AdmissionReview" or binding["kind"] != "Binding" or not request["uid"]:
            raise ValueError
        return request, binding, str(binding["target"]["name"])
    except (KeyError, TypeError, ValueError):
        raise ValueError("an AdmissionReview of a Binding is expected") from None
