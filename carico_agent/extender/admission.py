"""The admission webhook: an AdmissionReview of a binding that another scheduler makes.

With it an unmodified kube-scheduler cannot bind a Pod to a node whose number has just fallen, either: it is decided
while the API server waits with the binding. See deploy/admission/bindings.yaml.
"""

import asyncio

from carico_agent.extender.placement.leader_questions import Question
from carico_agent.extender.placement.placer import Placer
from carico_agent.extender.waiting_pods import AlreadyBound, WaitingPods
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import Unreachable
from carico_agent.lib.kube.pods import is_name


class AdmissionWebhook:
    """Answers within `bind_s` [s]."""

    def __init__(self, pods: WaitingPods, placer: Placer, bind_s: float) -> None:
        self._pods, self._placer, self._bind_s = pods, placer, bind_s
        self.refused = 0

    async def review(self, asked: Object) -> Object:
        """AdmissionReview → AdmissionReview. Raises ValueError if it is none of a binding, KubeError if this extender
        cannot know."""
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
        why = None if dry_run else await self.admit(namespace, name, uid, node)
        response: Object = {"uid": review_uid, "allowed": why is None}
        if why is not None:
            response["status"] = {"code": 409, "reason": "Conflict", "message": f"carico: {node}: {why}"}
        return {"apiVersion": version, "kind": "AdmissionReview", "response": response}

    async def admit(self, namespace: str, name: str, uid: str, node: str) -> str | None:
        """Why this binding by another scheduler must not be; None if it may. Asked while the API server waits
        with it. Only Pods that ask for the extended resource are counted, and those that our own bind has just refused:
        of the others' places we know nothing.
        Raises KubeError when that cannot be known; the API server has a rule for that (failurePolicy)."""
        try:
            async with asyncio.timeout(self._bind_s):
                why = await self._admit(namespace, name, uid, node)
        except TimeoutError as error:
            raise Unreachable(f"the API server did not answer within {self._bind_s:g} s") from error
        self.refused += bool(why)
        return why

    async def _admit(self, namespace: str, name: str, uid: str, node: str) -> str | None:
        try:
            pod = await self._pods.find(namespace, name, uid)
        except AlreadyBound as bound:
            return str(bound)
        if not pod.holds and not self._placer.refused_lately(uid, node):
            return None
        self._placer.must_see()
        return await self._placer.take(Question("admit", namespace, name, uid, node), pod)
