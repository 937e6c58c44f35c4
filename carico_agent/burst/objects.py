"""What the protocol reads in Job objects, and the bodies it writes. Pure: dictionaries in, dictionaries out.

The home Job is the ledger of its move: annotation `carico.dev/burst-ledger` and a finalizer. The copy elsewhere names
its origin: the home cluster (UID of its kube-system namespace), the Job's UID and the epoch of the move.

A user may write annotations, so a ledger counts only under burst's own seal (`seal`).
"""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from carico_agent.burst.seal import Seal
from carico_agent.lib.kube.placement_lease import MALFORMED

Object = dict[str, Any]

LEDGER = "carico.dev/burst-ledger"
ORIGIN = "carico.dev/burst-origin"
"""Annotation of a copy: {home, namespace, uid, epoch, state}. As a label of the copy and its Pods: the origin's UID."""
HOME_LABEL = "carico.dev/burst-home"
FINALIZER = "carico.dev/burst"


class State(StrEnum):
    """Where a Job is, in its ledger."""

    HOME = "home"
    HOLDING = "holding"
    AWAY = "away"
    RECALLING = "recalling"
    RETURNED = "returned"
    DONE = "done"


class CopyState(StrEnum):
    """What a copy may do: nothing yet, run, nothing any more."""

    HELD = "held"
    RELEASED = "released"
    SEALED = "sealed"


@dataclass(frozen=True)
class MoveRecord:
    """The annotation. `epoch` grows with every hold and every return, so that no old copy is ever released."""

    state: State = State.HOME
    to: str = ""
    epoch: int = 0
    parallelism: int = 1
    """What the Job had before it was held."""
    suspend: bool = False
    """Whether it is held by `suspend` (1.22 and newer) or by `parallelism: 0`."""
    note: str = ""
    cluster: str = ""
    """Which cluster `to` was when it was held: the UID of its kube-system namespace. A name can be configured anew."""
    namespace: str = ""
    """Of the copy."""
    copy: str = ""
    """UID of the copy, written with *away*: no other Job is ever released for this move."""


@dataclass(frozen=True)
class JobFacts:
    """What is the same at home and elsewhere. `version` is the resourceVersion that guards the next write."""

    namespace: str
    name: str
    uid: str
    version: str
    parallelism: int
    suspended: bool
    """spec.suspend."""
    controller_suspended: bool
    """Its controller says so: condition Suspended."""
    active: int
    succeeded: int
    failed: int
    finished: str
    """"Complete", "Failed" or empty."""
    deleting: bool
    whole: Object = field(repr=False, compare=False, hash=False, default_factory=dict)

    def held(self, by_suspend: bool) -> bool:
        return self.suspended if by_suspend else self.parallelism == 0

    def counted(self, by_suspend: bool) -> bool:
        """Whether its controller has written that it runs. Only from there does `stopped` prove anything."""
        return not self.controller_suspended if by_suspend else self.active > 0

    def stopped(self, by_suspend: bool) -> bool:
        """Whether its controller has acted on the hold. A sync that has not read the hold cannot write this: it would
        replace the Pods it misses and count those (unless they cannot be created, and then it waits 10 s)."""
        return self.active == 0 and (self.controller_suspended or not by_suspend)


@dataclass(frozen=True)
class HomeJob(JobFacts):
    """A Job at home."""

    ledger: MoveRecord = MoveRecord()
    guarded: bool = False
    """Has our finalizer."""


@dataclass(frozen=True)
class CopyJob(JobFacts):
    """A Job at a target. `origin` is empty when it is no copy of burst."""

    home: str = ""
    home_namespace: str = ""
    origin: str = ""
    epoch: int = 0
    state: CopyState = CopyState.HELD


def _facts(job: Object) -> dict[str, Any]:
    meta, spec, status = job.get("metadata") or {}, job.get("spec") or {}, job.get("status") or {}
    conditions = {c.get("type"): c.get("status") == "True" for c in status.get("conditions") or ()}
    parallelism = spec.get("parallelism")
    return {
        "namespace": str(meta.get("namespace", "")),
        "name": str(meta.get("name", "")),
        "uid": str(meta.get("uid", "")),
        "version": str(meta.get("resourceVersion", "")),
        "parallelism": 1 if parallelism is None else int(parallelism),
        "suspended": bool(spec.get("suspend")),
        "controller_suspended": conditions.get("Suspended", False),
        "active": int(status.get("active") or 0),
        "succeeded": int(status.get("succeeded") or 0),
        "failed": int(status.get("failed") or 0),
        "finished": next((name for name in ("Complete", "Failed") if conditions.get(name)), ""),
        "deleting": bool(meta.get("deletionTimestamp")),
        "whole": job,
    }


def _annotation(job: Object, name: str) -> Object:
    try:
        value = json.loads((job["metadata"].get("annotations") or {}).get(name) or "{}")
    except MALFORMED:
        return {}
    return value if isinstance(value, dict) else {}


def home_job(job: Object, seal: Seal) -> HomeJob:
    """Read a home Job; raises ValueError when burst did not write its ledger."""
    meta = job.get("metadata") or {}
    return HomeJob(**_facts(job), ledger=read_ledger(job, seal), guarded=FINALIZER in (meta.get("finalizers") or ()))


def read_ledger(job: Object, seal: Seal) -> MoveRecord:
    """The ledger of a Job; the one of a Job that was never moved has epoch 0."""
    value = _annotation(job, LEDGER)
    if not value:
        return MoveRecord(parallelism=_facts(job)["parallelism"])
    try:
        if not seal.holds(value, _sealed_for(job)):
            raise ValueError("its seal does not hold")
        return MoveRecord(
            State(value["state"]),
            str(value["to"]),
            int(value["epoch"]),
            int(value["parallelism"]),
            bool(value.get("suspend", False)),
            str(value.get("note", "")),
            str(value.get("cluster", "")),
            str(value.get("namespace", "")),
            str(value.get("copy", "")),
        )
    except MALFORMED as error:
        name = f"{job['metadata'].get('namespace')}/{job['metadata'].get('name')}"
        raise ValueError(
            f"{name}: burst did not write the annotation {LEDGER} ({error}): {value}. The Job is left alone until "
            "someone removes the annotation and the finalizer"
        ) from error


def _sealed_for(job: Object) -> tuple[str, str, str]:
    meta = job["metadata"]
    return str(meta.get("namespace", "")), str(meta.get("name", "")), str(meta.get("uid", ""))


def copy_job(job: Object) -> CopyJob:
    """Read a Job at a target; a Job that burst did not write is no copy."""
    value = _annotation(job, ORIGIN)
    facts = _facts(job)
    try:
        return CopyJob(
            **facts,
            home=str(value["home"]),
            home_namespace=str(value["namespace"]),
            origin=str(value["uid"]),
            epoch=int(value["epoch"]),
            state=CopyState(value["state"]),
        )
    except MALFORMED:
        return CopyJob(**facts)


def ledger_patch(home: HomeJob, ledger: MoveRecord, hold: bool | None, guard: bool, seal: Seal) -> Object:
    """A compare-and-swap of the home Job: its ledger, whether it is held (None: as it is), whether it has our
    finalizer."""
    kept = [name for name in home.whole["metadata"].get("finalizers") or () if name != FINALIZER]
    spec: Object = {"suspend": hold} if ledger.suspend else {"parallelism": 0 if hold else ledger.parallelism}
    if hold is None:
        spec = {}
    return {
        "metadata": {
            "resourceVersion": home.version,
            "annotations": {LEDGER: seal.sealed(asdict(ledger), (home.namespace, home.name, home.uid))},
            "finalizers": [*kept, FINALIZER] if guard else kept,
        },
        "spec": spec,
    }


def copy_patch(copy: CopyJob, state: CopyState, parallelism: int, by_suspend: bool) -> Object:
    """A compare-and-swap of the copy: release or seal it."""
    if state == CopyState.RELEASED:  # both: the target may have been upgraded since the copy was held
        spec: Object = {"parallelism": parallelism, **({"suspend": False} if by_suspend else {})}
    else:
        spec = {"suspend": True} if by_suspend else {"parallelism": 0}
    annotations = {ORIGIN: _origin(copy.home, copy.home_namespace, copy.origin, copy.epoch, state)}
    return {"metadata": {"resourceVersion": copy.version, "annotations": annotations}, "spec": spec}


def _origin(home: str, namespace: str, uid: str, epoch: int, state: CopyState) -> str:
    value = {"home": home, "namespace": namespace, "uid": uid, "epoch": epoch, "state": state}
    return json.dumps(value, separators=(",", ":"))


OURS_ALONE = ("carico.dev/burst", "controller-uid", "job-name")
"""Labels and annotations that begin so are not copied, nor are those of Kubernetes' own controllers."""
_NOT_COPIED = (*OURS_ALONE, "batch.kubernetes.io/", "kubectl.kubernetes.io/last-applied")


def _carried(texts: dict[str, str] | None) -> dict[str, str]:
    return {key: text for key, text in (texts or {}).items() if not key.startswith(_NOT_COPIED)}


def copy_body(home: HomeJob, home_id: str, namespace: str, by_suspend: bool, template: Object | None = None) -> Object:
    """The held copy, its Pods from `template` (None: the Job's own). Without owner, selector and time to live: the
    first two mean nothing elsewhere, and a copy that deletes itself before its result is home would be a Job that was
    lost. `parallelism: 0` holds it also where a server drops `suspend`, which it does not know (one of several that are
    being upgraded)."""
    meta, spec = home.whole["metadata"], home.whole["spec"]
    ledger = home.ledger
    mine = {ORIGIN: home.uid, HOME_LABEL: home_id}
    template = spec["template"] if template is None else template
    template_meta = template.get("metadata") or {}
    dropped = ("selector", "manualSelector", "ttlSecondsAfterFinished", "managedBy", "suspend")
    body_spec = {key: value for key, value in spec.items() if key not in dropped}
    body_spec["template"] = {
        **template,
        "metadata": {
            "labels": {**_carried(template_meta.get("labels")), **mine},
            "annotations": _carried(template_meta.get("annotations")),
        },
    }
    body_spec |= {"parallelism": 0, **({"suspend": True} if by_suspend else {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": home.name,
            "namespace": namespace,
            "labels": {**_carried(meta.get("labels")), **mine},
            "annotations": {
                **_carried(meta.get("annotations")),
                ORIGIN: _origin(home_id, home.namespace, home.uid, ledger.epoch, CopyState.HELD),
            },
        },
        "spec": body_spec,
    }


def delete_options(copy: CopyJob) -> Object:
    """Delete exactly this copy. One that may still run goes after its Pods (Foreground); a finished one at once.

    Without a policy batch/v1 leaves the Pods behind.
    """
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background" if copy.finished else "Foreground",
        "preconditions": {"uid": copy.uid, "resourceVersion": copy.version},
    }
