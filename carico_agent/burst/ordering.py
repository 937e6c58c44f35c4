"""`carico.dev/after: JOB, JOB`: a Job that was created suspended starts when these Jobs of its namespace are complete.

Burst starts it once and writes that down in the same request (`carico.dev/burst-after`). A user or controller that
suspends the Job afterwards is not overruled. Pure.
"""

from collections.abc import Mapping

from carico_agent.burst.objects import HomeJob, Object, State
from carico_agent.burst.requirements import KUEUE
from carico_agent.burst.target import Key

AFTER = "carico.dev/after"
STARTED = "carico.dev/burst-after"


def waits_for(job: HomeJob) -> tuple[str, ...]:
    """The names of the Jobs that it waits for; empty: it waits for none, or not any more."""
    meta = job.whole["metadata"]
    texts, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    if not texts.get(AFTER) or texts.get(STARTED) or KUEUE in labels or not job.suspended:
        return ()
    if job.ledger.state != State.HOME or job.finished or job.deleting:
        return ()
    return tuple(filter(None, texts[AFTER].replace(" ", "").split(",")))


def why_waits(job: HomeJob, jobs: Mapping[Key, HomeJob]) -> str:
    """Why a Job that waits for others must not start yet, or nothing."""
    for name in waits_for(job):
        other = jobs.get((job.namespace, name))
        if other is None:
            return f"it waits for Job {name}, which does not exist or does not have burst's label"
        if other.finished == "Failed":
            return f"it waits for Job {name}, which failed"
        if other.finished != "Complete":
            return f"it waits for Job {name}"
    return ""


def created(job: Object) -> Object:
    """A Job as it must be created: suspended if it waits for others.

    >>> created({"metadata": {"annotations": {AFTER: "arpu"}}, "spec": {}})["spec"]
    {'suspend': True}
    """
    if not (job["metadata"].get("annotations") or {}).get(AFTER):
        return job
    return {**job, "spec": {**job["spec"], "suspend": True}}


def start_patch(job: HomeJob) -> Object:
    """A compare-and-swap that starts it."""
    meta = {"resourceVersion": job.version, "annotations": {STARTED: "started"}}
    return {"metadata": meta, "spec": {"suspend": False}}
