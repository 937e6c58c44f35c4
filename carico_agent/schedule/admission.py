"""What the API server asks about a binding before it makes it: an AdmissionReview, answered by `Extender.admit`.

With it an unmodified kube-scheduler cannot bind a Pod to a node whose number has just fallen, either: the last word is
said while the API server waits with the binding. See deploy/admission/bindings.yaml.
"""

import re
from typing import Any

from carico_agent.kube.client import Object
from carico_agent.schedule.extender import Extender

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


async def review(extender: Extender, asked: Object) -> Object:
    """AdmissionReview → AdmissionReview. Raises ValueError when it is none of a binding."""
    try:
        version, request = asked["apiVersion"], asked["request"]
        review_uid, dry_run, binding = request["uid"], request.get("dryRun"), request["object"]
        kinds = asked["kind"], binding["kind"]
        meta = binding["metadata"]
        uid, namespace = meta.get("uid") or "", request["namespace"]
        name, node = meta.get("name") or request["name"], binding["target"]["name"]
    except (KeyError, TypeError, AttributeError):
        raise ValueError("an AdmissionReview of a Binding is expected") from None
    if kinds != ("AdmissionReview", "Binding") or not all(map(_is_name, (namespace, name, node))) or not _is_text(uid):
        raise ValueError("an AdmissionReview of a Binding is expected")
    why = None if dry_run else await extender.admit(namespace, name, uid, node)
    said: Object = {"uid": review_uid, "allowed": why is None}
    if why is not None:
        said["status"] = {"code": 409, "reason": "Conflict", "message": f"carico: {node}: {why}"}
    return {"apiVersion": version, "kind": "AdmissionReview", "response": said}


def _is_name(text: Any) -> bool:
    """Names become parts of addresses, and anybody may ask."""
    return _is_text(text) and _NAME.fullmatch(text) is not None


def _is_text(text: Any) -> bool:
    return isinstance(text, str)
