"""Events on the home Jobs, in words. Posted by one task, at most so many at once; a lost event is not repeated."""

import asyncio
import logging
import time

from carico_agent.burst.objects import HomeJob, Object
from carico_agent.burst.protocol import Action
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.net.times import rfc3339

log = logging.getLogger(__name__)

EVENTS = {
    Action.RELEASE: "BurstMoved",
    Action.MIRROR: "BurstFinished",
    Action.RETURN: "BurstReturned",
    Action.ABANDON: "BurstForgotten",
    Action.HOLD_AGAIN: "BurstHeldAgain",
    Action.CANCEL_RECALL: "BurstRecallRefused",
}
"""Which writes are worth an event: two per move, since every event is a request to the home API server."""

WORDS = {
    "BurstMoved": "runs at {to}",
    "BurstFinished": "has ended at {to}",
    "BurstReturned": "is back from {to}",
    "BurstForgotten": "starts at home again: {to} is fenced",
    "BurstHeldAgain": "is at {to}, and another client started it here: held again",
    "BurstRecallRefused": "stays at {to}: {why}",
    "BurstRefused": "stays at home, not {to}: {why}",
}
WARNINGS = ("BurstForgotten", "BurstHeldAgain", "BurstRefused", "BurstRecallRefused")


class JobEvents:
    """Events that wait to be sent. Beyond `most` events the oldest is dropped."""

    def __init__(self, most: int = 1000) -> None:
        self._queue: asyncio.Queue[tuple[str, Object]] = asyncio.Queue(most)
        self.dropped = 0

    def add(self, job: HomeJob, reason: str, to: str, why: str = "") -> None:
        message = WORDS[reason].format(to=to, why=why)
        log.info("Job %s/%s %s", job.namespace, job.name, message)
        if self._queue.full():
            self.dropped += 1
            self._queue.get_nowait()
        self._queue.put_nowait((job.namespace, event_body(job, reason, message)))

    async def run(self, client: KubeClient) -> None:
        while True:
            namespace, body = await self._queue.get()
            try:
                await client.post(f"/api/v1/namespaces/{namespace}/events", body)
            except KubeError as error:
                self.dropped += 1
                log.debug("event lost: %s", error)


def event_body(job: HomeJob, reason: str, message: str) -> Object:
    now = rfc3339(digits="seconds")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{job.name[:200]}.{time.time_ns():x}", "namespace": job.namespace},
        "involvedObject": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": job.namespace,
            "name": job.name,
            "uid": job.uid,
        },
        "reason": reason,
        "message": message,
        "type": "Warning" if reason in WARNINGS else "Normal",
        "source": {"component": "carico-burst"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
