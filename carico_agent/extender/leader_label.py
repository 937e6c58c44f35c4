"""Labels our own Pod while we lead, so that the extenders' Service sends everybody to the leader.

A client that reaches another replica is answered, too (placement/leader_questions.py), only later.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping

from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError

log = logging.getLogger(__name__)

LABEL = "carico.dev/leads"
LOOK_S = 0.5
RETRY_S = 10.0


class LeaderLabel:
    """Keeps the label true while `run` runs."""

    def __init__(self, client: KubeClient, namespace: str, pod: str, leads: Callable[[], bool]) -> None:
        self._client, self._leads = client, leads
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self._written: bool | None = None  # None: not known, a container that was here before may have written it

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            leads, wait_s = self._leads(), LOOK_S
            if leads != self._written:
                try:
                    labels = {LABEL: "yes" if leads else None}
                    await self._client.patch(self._path, {"metadata": {"labels": labels}})
                    self._written = leads
                except KubeError as error:
                    log.warning(
                        "cannot write the label %s of this Pod, so a Service may not find the leader: %s", LABEL, error
                    )
                    wait_s = RETRY_S
            await asyncio.sleep(wait_s)


def label_of(
    client: KubeClient, leads: Callable[[], bool], environment: Mapping[str, str] = os.environ
) -> LeaderLabel | None:
    """None: we run in no Pod, or its name is not in our environment (POD_NAMESPACE, POD_NAME)."""
    namespace, pod = environment.get("POD_NAMESPACE", ""), environment.get("POD_NAME", "")
    return LeaderLabel(client, namespace, pod, leads) if namespace and pod else None
