"""From histories to recommendations: one per container of a workload, its replicas together."""

import json
from collections import defaultdict
from dataclasses import replace

from carico_agent.recommend.advice import Recommendation, advise
from carico_agent.recommend.checkpoint import Checkpoint, encode
from carico_agent.recommend.history import ContainerHistory
from carico_agent.recommend.method import Options, evidence
from carico_agent.recommend.sources.histories import Found
from carico_agent.recommend.workload import ContainerKey, OwnerObject, Resources

STILL_THERE_S = 900.0
"""A Pod without a sample for so long does not run any more [s]."""
Group = dict[ContainerKey, ContainerHistory]


def groups(found: Found) -> dict[tuple[OwnerObject, str], Group]:
    """Histories by workload and container name, in the order of their names."""
    made: dict[tuple[OwnerObject, str], Group] = defaultdict(dict)
    for key in sorted(found.histories):
        made[key.workload, key.container][key] = found.histories[key]
    return dict(made)


def recommendations(found: Found, method: str, options: Options) -> list[Recommendation]:
    made = groups(found)
    containers = {workload: sum(other == workload for other, _ in made) for workload, _ in made}
    rows = [
        advise(
            workload,
            name,
            tuple(key.pod for key in group if key.pod),
            group.values(),
            _current(found, group),
            method,
            options,
            found.largest,
            containers[workload],
            found.replicas.get(workload) or _running(group),
        )
        for (workload, name), group in made.items()
    ]
    return [
        replace(row, hpa=found.hpas.get(row.workload, ""), sidecar=_is_sidecar(found, row.workload, row.container))
        for row in rows
    ]


def _is_sidecar(found: Found, workload: OwnerObject, container: str) -> bool:
    return found.declared.get((workload, container), {}).get("list") == "initContainers"


def _running(group: Group) -> int:
    """Pods that were seen until the end: a history keeps those of the last eight days."""
    last_s = max(history.last_s for history in group.values())
    return sum(history.last_s >= last_s - STILL_THERE_S for history in group.values())


def _current(found: Found, group: Group) -> Resources:
    """Of the replica that was seen last: older ones may be from before a change."""
    newest = max(group, key=lambda key: group[key].last_s)
    return found.current.get(newest, Resources())


def checkpoints(found: Found) -> str:
    """A list of VerticalPodAutoscalerCheckpoints; VPA takes them over when it starts."""
    items = []
    for (workload, name), group in groups(found).items():
        seen, histories = evidence(group.values()), list(group.values())
        known = [one for one in histories if one.samples] or histories
        state = Checkpoint(
            seen.cpu, seen.memory, min(h.first_s for h in known), max(h.last_s for h in known), seen.samples
        )
        items.append(
            {
                "apiVersion": "autoscaling.k8s.io/v1",
                "kind": "VerticalPodAutoscalerCheckpoint",
                "metadata": {"name": f"{workload.name}-{name}", "namespace": workload.namespace},
                "spec": {"vpaObjectName": workload.name, "containerName": name},
                "status": encode(state),
            }
        )
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2)
