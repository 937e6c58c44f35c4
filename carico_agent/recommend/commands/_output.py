"""Recommendations for people and for kubectl: table, JSON, and values one can paste. Nothing is ever applied."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from carico_agent.recommend.advice import Advice, Recommendation
from carico_agent.recommend.method import TEMPLATE_HORIZON_S
from carico_agent.recommend.savings import Savings, savings, severity, total
from carico_agent.recommend.workload import GUARANTEED, OwnerObject

MIB = 2**20
Format = Callable[[Sequence[Recommendation]], str]


def cpu_quantity(cores: float) -> str:
    """
    >>> cpu_quantity(0.35), cpu_quantity(2.0)
    ('350m', '2')
    """
    milli = round(cores * 1000)
    return str(milli // 1000) if milli % 1000 == 0 and milli else f"{milli}m"


def memory_quantity(size_bytes: float) -> str:
    """
    >>> memory_quantity(250 * 2**20), memory_quantity(2 * 2**30)
    ('250Mi', '2Gi')
    """
    mib = -(-int(size_bytes) // MIB)
    return f"{mib // 1024}Gi" if mib and mib % 1024 == 0 else f"{mib}Mi"


def _cpu(value: float | None) -> str:
    return "-" if value is None else cpu_quantity(value)


def _memory(value: float | None) -> str:
    return "-" if value is None else memory_quantity(value)


def table(rows: Sequence[Recommendation], wide: bool = False) -> str:
    """A line per container, below it the reasons, and the sum of all at the end."""
    head = ["WORKLOAD", "CONTAINER", "PODS", "SEVERITY", "CPU", "→", "MEMORY", "→", "METHOD", "SAMPLES", "CONFIDENCE"]
    head += ["SAVED CPU", "SAVED MEMORY", "GUARANTEED CPU", "GUARANTEED MEMORY"] if wide else []
    lines = [head, *(_cells(row, wide) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    printed = [text[0]]
    for line, row in zip(text[1:], rows, strict=True):
        printed += [line, f"    cpu: {'; '.join(row.cpu.why)}", f"    memory: {'; '.join(row.memory.why)}"]
        printed += [f"    {row.hpa}: other requests change when it does"] if row.hpa else []
    return "\n".join([*printed, summary(rows)])


def summary(rows: Sequence[Recommendation]) -> str:
    """The total, and for how long ahead it holds."""
    found = total(rows)
    counted = len(rows) - found.unknown
    lines = [
        f"in total, {counted} of {len(rows)} containers with a request now: "
        f"{found.current_cores:.3g} → {found.recommended_cores:.3g} cores, "
        f"{found.current_bytes / 2**30:.3g} → {found.recommended_bytes / 2**30:.3g} GiB"
    ]
    ahead_s = min((row.horizon_s for row in rows), default=0.0)
    if ahead_s < TEMPLATE_HORIZON_S:
        lines.append(f"these numbers are for the next {ahead_s / 60:g} minutes: resize with them, change no template")
    return "\n".join(lines)


def _cells(row: Recommendation, wide: bool) -> list[str]:
    saved = savings(row)
    cells = [
        row.workload.full_name,
        row.container,
        str(row.replicas),
        severity(row),
        _cpu(row.cpu.current_request),
        "?" if row.cpu.request is None else cpu_quantity(row.cpu.request),
        _memory(row.memory.current_request),
        "?" if row.memory.request is None else memory_quantity(row.memory.request),
        "/".join(dict.fromkeys((row.cpu.method, row.memory.method))),
        str(row.samples),
        f"{row.confidence} ({row.confidence_days:.2g} d)",
    ]
    if wide:
        cells += [f"{saved.saved_cores:.3g}", f"{saved.saved_bytes / MIB:.4g}Mi"]
        cells += [_cpu(row.guaranteed[0]), _memory(row.guaranteed[1])]
    return cells


def as_object(rows: Sequence[Recommendation]) -> dict[str, Any]:
    return {"recommendations": [_object(row) for row in rows], "total": _savings(total(rows))}


def as_json(rows: Sequence[Recommendation]) -> str:
    return json.dumps(as_object(rows), indent=2)


def _savings(found: Savings) -> dict[str, Any]:
    return {
        "current_cores": round(found.current_cores, 3),
        "recommended_cores": round(found.recommended_cores, 3),
        "saved_cores": round(found.saved_cores, 3),
        "current_bytes": round(found.current_bytes),
        "recommended_bytes": round(found.recommended_bytes),
        "saved_bytes": round(found.saved_bytes),
        "not_counted": found.unknown,
    }


def _object(row: Recommendation) -> dict[str, Any]:
    return {
        "namespace": row.workload.namespace,
        "kind": row.workload.kind,
        "workload": row.workload.name,
        "container": row.container,
        "qos": row.qos or None,
        "pods": list(row.pods),
        "replicas": row.replicas,
        "severity": severity(row),
        "savings": _savings(savings(row)),
        "horizon_s": row.horizon_s,
        "hpa": row.hpa or None,
        "guaranteed": {"cores": row.guaranteed[0], "bytes": row.guaranteed[1]},
        "samples": row.samples,
        "confidence": row.confidence,
        "confidence_days": round(row.confidence_days, 4),
        "throttled_ratio": round(row.throttled_ratio, 4),
        "oom_kills": row.oom_kills,
        "cpu": _advice(row.cpu, "cores", cpu_quantity),
        "memory": _advice(row.memory, "bytes", memory_quantity),
    }


def _advice(advice: Advice, unit: str, quantity: Callable[[float], str]) -> dict[str, Any]:
    return {
        f"current_request_{unit}": advice.current_request,
        f"current_limit_{unit}": advice.current_limit,
        f"recommended_{unit}": advice.request,
        "recommended": None if advice.request is None else quantity(advice.request),
        f"limit_{unit}": advice.limit,
        "drop_limit": advice.drop_limit,
        f"lower_{unit}": advice.lower,
        f"upper_{unit}": advice.upper,
        "method": advice.method,
        "why": list(advice.why),
    }


def by_workload(rows: Sequence[Recommendation]) -> dict[OwnerObject, list[Recommendation]]:
    """Rows with something to say."""
    found: dict[OwnerObject, list[Recommendation]] = {}
    for row in rows:
        if row.cpu.request is not None or row.memory.request is not None:
            found.setdefault(row.workload, []).append(row)
    return found


def resources_of(row: Recommendation) -> dict[str, dict[str, str | None]]:
    """Requests, and limits only where they must change; None: it is dropped."""
    requests: dict[str, str | None] = {}
    limits: dict[str, str | None] = {}
    for name, advice, quantity in (("cpu", row.cpu, cpu_quantity), ("memory", row.memory, memory_quantity)):
        if advice.request is not None:
            requests[name] = quantity(advice.request)
        if advice.limit is not None:
            limits[name] = quantity(advice.limit)
        elif advice.drop_limit:
            limits[name] = None
    return {"requests": requests, **({"limits": limits} if limits else {})}


def unknown_lines(rows: Sequence[Recommendation]) -> list[str]:
    """What is "?" is left out of values to paste, and named in a comment."""
    return [
        f"# {row.workload.full_name} {row.container}: {name}: ? {'; '.join(advice.why)}"
        for row in rows
        for name, advice in (("cpu", row.cpu), ("memory", row.memory))
        if advice.request is None
    ]


def _api_version(kind: str) -> str:
    return {"CronJob": "batch/v1", "Job": "batch/v1", "Pod": "v1"}.get(kind, "apps/v1")


def vpa(rows: Sequence[Recommendation]) -> str:
    """VerticalPodAutoscaler objects that change nothing (updateMode Off), with the recommendation as their status."""
    import yaml

    made = []
    for workload, containers in by_workload(rows).items():
        made.append(
            {
                "apiVersion": "autoscaling.k8s.io/v1",
                "kind": "VerticalPodAutoscaler",
                "metadata": {"name": workload.name, "namespace": workload.namespace},
                "spec": {
                    "targetRef": {
                        "apiVersion": _api_version(workload.kind),
                        "kind": workload.kind,
                        "name": workload.name,
                    },
                    "updatePolicy": {"updateMode": "Off"},
                },
                "status": {"recommendation": {"containerRecommendations": [_container(row) for row in containers]}},
            }
        )
    return "\n".join([*unknown_lines(rows), yaml.safe_dump_all(made, sort_keys=False).rstrip() if made else ""]).strip()


def _container(row: Recommendation) -> dict[str, Any]:
    def bound(cpu: float | None, memory: float | None) -> dict[str, str]:
        known = {"cpu": (cpu, cpu_quantity), "memory": (memory, memory_quantity)}
        return {name: quantity(value) for name, (value, quantity) in known.items() if value is not None}

    return {
        "containerName": row.container,
        "target": bound(row.cpu.request, row.memory.request),
        "lowerBound": bound(row.cpu.lower, row.memory.lower),
        "upperBound": bound(row.cpu.upper, row.memory.upper),
    }


TEMPLATED = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "CronJob")
"""Kinds whose template the API server lets change, and merges strategically."""


def patch(rows: Sequence[Recommendation]) -> str:
    """A kubectl command per workload; a bare Pod is resized, because its resources do not change otherwise."""
    lines = unknown_lines(rows)
    for workload, containers in by_workload(rows).items():
        if workload.kind == "Pod":
            lines += _resized(workload, containers)
            continue
        if workload.kind not in TEMPLATED:
            lines.append(f"# {workload.full_name}: {_why_no_patch(workload.kind)}")
            continue
        spec: dict[str, Any] = {"template": {"spec": _named(containers)}}
        if workload.kind == "CronJob":
            spec = {"jobTemplate": {"spec": spec}}
        if workload.guessed:
            lines.append(f"# {workload.full_name}: kind and name were read off its Pods' names; check them")
        body = json.dumps({"spec": spec}, separators=(",", ":"))
        target = f"{workload.kind.lower()} {workload.name} -n {workload.namespace}"
        lines.append(f"kubectl patch {target} --type strategic -p '{body}'")
    return "\n".join(lines)


def resize(rows: Sequence[Recommendation]) -> str:
    """A kubectl command per running Pod: in place, without a restart (Kubernetes 1.33, kubectl 1.32)."""
    lines = unknown_lines(rows)
    for workload, containers in by_workload(rows).items():
        lines += _resized(workload, containers)
    return "\n".join(lines)


def _resized(workload: OwnerObject, containers: Sequence[Recommendation]) -> list[str]:
    pods = sorted({pod for row in containers for pod in row.pods if pod})
    if not pods:
        return [f"# {workload.full_name}: this source names no Pods; use --output patch"]
    if refused := why_no_resize(workload.kind, containers):
        return [f"# {workload.full_name}: {refused}"]
    lines = []
    for pod in pods:
        body = json.dumps({"spec": _named([r for r in containers if pod in r.pods])}, separators=(",", ":"))
        lines.append(f"kubectl patch pod {pod} -n {workload.namespace} --subresource resize -p '{body}'")
    return lines


def _named(rows: Sequence[Recommendation]) -> dict[str, Any]:
    """The part of a Pod's spec that changes; sidecars stand among the init containers."""
    made: dict[str, Any] = {}
    for row in rows:
        listed = made.setdefault("initContainers" if row.sidecar else "containers", [])
        listed.append({"name": row.container, "resources": resources_of(row)})
    return made


def _why_no_patch(kind: str) -> str:
    if kind == "Job":
        return "a Job's template cannot be changed; change the manifest that the next Job is made from"
    if kind == "Node":
        return "a static Pod; change its manifest on the node"
    return f"kubectl cannot patch its owner ({kind or 'of unknown kind'}); change the manifest of its Pods' template"


def why_no_resize(kind: str, containers: Sequence[Recommendation]) -> str | None:
    """Kubernetes refuses a resize that changes the QoS class."""
    if kind == "Node":
        return _why_no_patch(kind)
    instead = "use --output patch" if kind in TEMPLATED else "make the Pod anew with these requests"
    if any(row.cpu.drop_limit or row.memory.drop_limit for row in containers):
        return f"a resize cannot drop a limit; {instead}"
    if any(row.qos == "BestEffort" for row in containers):
        return f"its Pods are BestEffort, and a resize cannot change the QoS class; {instead}"
    if all(row.qos != GUARANTEED and row.cpu.equal and row.memory.equal for row in containers):
        return f"its Pods are not {GUARANTEED}, and a resize cannot change the QoS class; {instead}"
    return None


FORMATS: dict[str, Format] = {
    "table": table,
    "wide": lambda rows: table(rows, wide=True),
    "json": as_json,
    "vpa": vpa,
    "patch": patch,
    "resize": resize,
}
