"""A copy's result as the home Job's status, in the form that every version of the home cluster accepts.

Since 1.32 the API server checks what is written there as if its own Job controller wrote it, whatever the version of
the target was that ran the copy:

- Complete needs SuccessCriteriaMet, Failed needs FailureTarget: a target before 1.31 writes neither;
- a finished Job has a startTime, a complete one a completionTime that is not earlier;
- the startTime of a Job that is not suspended does not change: one that is held by `parallelism: 0` keeps its own;
- counters do not fall, and nothing is active, ready or terminating.

Older versions check nothing of this and do not mind conditions that they do not know.
"""

from typing import Any

from carico_agent.burst.objects import CopyJob, HomeJob, Object
from carico_agent.lib.net.times import parse_rfc3339, rfc3339

COMES_FIRST = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}
"""The condition that the Job controller writes before a Job ends, by the one with which it ends."""

NO_LONGER = ("active", "ready", "terminating", "uncountedTerminatedPods")


def final_status(home: HomeJob, copy: CopyJob) -> Object:
    """The copy's result as a compare-and-swap of the home Job's status."""
    there, here = copy.whole.get("status") or {}, home.whole.get("status") or {}
    conditions = _conditions(there)
    status: Object = {key: there[key] for key in ("completedIndexes", "failedIndexes") if key in there}
    status |= {key: max(int(side.get(key) or 0) for side in (there, here)) for key in ("succeeded", "failed")}
    status |= dict.fromkeys(NO_LONGER) | _times(home, here, there, conditions)
    return {"metadata": {"resourceVersion": home.version}, "status": {**status, "conditions": conditions}}


def _conditions(there: Object) -> list[Object]:
    """The copy's, with those that a newer server asks for.

    >>> [one["type"] for one in _conditions({"conditions": [{"type": "Complete", "status": "True"}]})]
    ['SuccessCriteriaMet', 'Complete']
    """
    found = [one for one in there.get("conditions") or () if one.get("type") != "Suspended"]
    types = {one.get("type") for one in found if one.get("status") == "True"}
    missing = {end: first for end, first in COMES_FIRST.items() if end in types and first not in types}
    ends = [one for one in found if one.get("type") in missing]
    return [*({**end, "type": missing[end["type"]]} for end in ends), *found]


def _times(home: HomeJob, here: Object, there: Object, conditions: list[Object]) -> Object:
    complete = next((one for one in conditions if one.get("type") == "Complete"), None)
    kept = None if home.suspended else here.get("startTime")
    started = kept or there.get("startTime") or here.get("startTime")
    if complete is None:
        return {"startTime": started or rfc3339(digits="seconds")}
    ended = there.get("completionTime") or complete.get("lastTransitionTime") or rfc3339(digits="seconds")
    return {"startTime": started or ended, "completionTime": _later(started, ended)}


def _later(one: Any, other: Any) -> Any:
    """The later of two times: clusters' clocks differ.

    >>> _later("2024-01-01T00:00:05Z", "2024-01-01T00:00:04Z"), _later(None, "2024-01-01T00:00:04Z")
    ('2024-01-01T00:00:05Z', '2024-01-01T00:00:04Z')
    """
    return one if one is not None and parse_rfc3339(str(one)) > parse_rfc3339(str(other)) else other
