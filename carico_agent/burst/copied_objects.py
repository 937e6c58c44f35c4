"""ConfigMaps and Secrets that a Job names, taken to its target with it, where the operator allows that (`copy`).

They are written when the copy of the Job exists and before the move is committed. The copy owns them: the target's
garbage collector deletes them with it, whichever client deletes it and whatever happens to burst. An object that
several copies name has several owners. An object that is at the target already and that burst did not bring is used
as it is.

Only the data is taken, and of Secrets only types that hold nothing but data: a service account's token is issued by
the cluster in which a Secret of that type is created, to the client that creates it.
"""

import json
from collections.abc import Generator

from carico_agent.burst.objects import ORIGIN, CopyJob, HomeJob, Object
from carico_agent.burst.requests import Request, ServerAnswer
from carico_agent.burst.requirements import Needed

KINDS = {"config map": ("configmaps", "ConfigMap"), "secret": ("secrets", "Secret")}
"""How a Job names it, as the setting names it, as Kubernetes does."""
PLAIN_SECRETS = (
    "Opaque",
    "kubernetes.io/dockerconfigjson",
    "kubernetes.io/dockercfg",
    "kubernetes.io/basic-auth",
    "kubernetes.io/ssh-auth",
    "kubernetes.io/tls",
)
MAX_TRIES = 4


def may_copy(one: Needed, allowed: tuple[str, ...]) -> bool:
    return one.kind in KINDS and KINDS[one.kind][0] in allowed


def why_not_copied(one: Needed, found: Object) -> str:
    """Why an object of home is not taken along, or nothing."""
    kind = str(found.get("type") or "Opaque")
    if one.kind == "secret" and kind not in PLAIN_SECRETS:
        return f"secret {one.name} has type {kind}, which is not copied"
    return ""


def body_of(one: Needed, found: Object, home: HomeJob, home_id: str, copy: CopyJob) -> Object:
    """An object of home as it is at the target."""
    origin = json.dumps({"home": home_id, "namespace": home.namespace}, separators=(",", ":"))
    made: Object = {
        "apiVersion": "v1",
        "kind": KINDS[one.kind][1],
        "metadata": {"name": one.name, "annotations": {ORIGIN: origin}, "ownerReferences": [_owner(copy)]},
    }
    return made | {key: found[key] for key in ("data", "binaryData", "type") if found.get(key)}


def _owner(copy: CopyJob) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": copy.name, "uid": copy.uid}


def with_owner(there: Object, wanted: Object, copy: CopyJob) -> Object:
    """A compare-and-swap of an object that burst brought before: today's data, and one owner more."""
    owners = [one for one in there["metadata"].get("ownerReferences") or () if one.get("uid") != copy.uid]
    meta = {"resourceVersion": there["metadata"]["resourceVersion"], "ownerReferences": [*owners, _owner(copy)]}
    data = {key: _replaced(there.get(key), wanted.get(key)) for key in ("data", "binaryData")}
    return {"metadata": meta} | {key: value for key, value in data.items() if value}


def _replaced(old: Object | None, new: Object | None) -> Object:
    """A merge patch from one to the other."""
    return {**dict.fromkeys(old or {}), **(new or {})}


def take_along(
    wanted: list[Needed], home: HomeJob, home_id: str, copy: CopyJob, namespace: str
) -> Generator[Request, ServerAnswer, str]:
    """Bring every object to the target. Returns why one cannot be there, or nothing."""
    for one in wanted:
        for _ in range(MAX_TRIES):
            why, again = yield from _bring(one, home, home_id, copy, namespace)
            if not again:
                break
        if why:
            return why
    return ""


def _bring(
    one: Needed, home: HomeJob, home_id: str, copy: CopyJob, namespace: str
) -> Generator[Request, ServerAnswer, tuple[str, bool]]:
    """One try: why not, and whether another client was faster and it is worth another try."""
    path = one.path(namespace)
    there = yield Request(False, "GET", path)
    origin = _origin(there.body) if there.status < 300 else {}
    if there.status < 300 and not origin:
        return "", False
    if origin and origin != {"home": home_id, "namespace": home.namespace}:
        return (
            f"its namespace there has a {one.kind} {one.name} that was copied from namespace {origin['namespace']}",
            False,
        )
    found = yield Request(True, "GET", one.path(home.namespace))
    if found.status == 404:
        return ("", False) if origin else (f"neither home nor the target has {one.kind} {one.name}", False)
    if why := why_not_copied(one, found.body):
        return why, False
    body = body_of(one, found.body, home, home_id, copy)
    if origin:
        answer = yield Request(False, "PATCH", path, with_owner(there.body, body, copy))
    else:
        answer = yield Request(False, "POST", path.rpartition("/")[0], body)
    if answer.status in (404, 409):
        return f"another client changes {one.kind} {one.name} at the target", True
    return ("" if answer.status < 300 else str(answer.body.get("message") or answer.status)), False


def _origin(there: Object) -> Object:
    """Where burst brought it from; empty: another client made it."""
    text = (there["metadata"].get("annotations") or {}).get(ORIGIN, "")
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) and value.keys() == {"home", "namespace"} else {}
