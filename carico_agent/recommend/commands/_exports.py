"""Recommendations for other programs: CSV, YAML, and JSON patches."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from carico_agent.recommend.advice import Recommendation
from carico_agent.recommend.commands._output import TEMPLATED, as_object, by_workload, resources_of, unknown_lines
from carico_agent.recommend.savings import savings, severity
from carico_agent.recommend.sources.histories import Found
from carico_agent.recommend.workload import OwnerObject

COLUMNS = (
    "namespace",
    "kind",
    "workload",
    "container",
    "replicas",
    "severity",
    "cpu_request",
    "cpu_recommended",
    "cpu_limit",
    "cpu_limit_recommended",
    "cpu_guaranteed",
    "cpu_saved",
    "memory_request",
    "memory_recommended",
    "memory_limit",
    "memory_limit_recommended",
    "memory_guaranteed",
    "memory_saved",
    "method",
    "horizon_s",
    "samples",
    "confidence_days",
    "hpa",
)
"""Cores and bytes; empty: not known, or nothing to change."""


def as_csv(rows: Sequence[Recommendation]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        saved = savings(row)
        writer.writerow(
            [
                row.workload.namespace,
                row.workload.kind,
                row.workload.name,
                row.container,
                row.replicas,
                severity(row),
                *_cells(row, "cpu", round(saved.saved_cores, 3)),
                *_cells(row, "memory", round(saved.saved_bytes)),
                "/".join(dict.fromkeys((row.cpu.method, row.memory.method))),
                f"{row.horizon_s:g}",
                row.samples,
                round(row.confidence_days, 3),
                row.hpa,
            ]
        )
    return text.getvalue().rstrip("\n")


def _cells(row: Recommendation, resource: str, saved: float) -> list[Any]:
    advice, guaranteed = (row.cpu, row.guaranteed[0]) if resource == "cpu" else (row.memory, row.guaranteed[1])
    limit = "none" if advice.drop_limit else advice.limit
    return [advice.current_request, advice.request, advice.current_limit, limit, guaranteed, saved]


def as_yaml(rows: Sequence[Recommendation]) -> str:
    import yaml

    return str(yaml.safe_dump(as_object(rows), sort_keys=False, allow_unicode=True)).rstrip()


def json_patches(rows: Sequence[Recommendation], found: Found) -> str:
    """RFC 6902, one kubectl command per workload. The place of a container in its template must be known (--cluster),
    and a `test` makes the API server refuse the patch where another container stands there."""
    lines = unknown_lines(rows)
    for workload, containers in by_workload(rows).items():
        if workload.kind not in TEMPLATED:
            lines.append(f"# {workload.full_name}: a {workload.kind or 'workload'} has no template that can be patched")
            continue
        known = [(row, found.declared.get((workload, row.container))) for row in containers]
        absent = [row.container for row, said in known if said is None]
        if absent:
            where = f"# {workload.full_name}: the place of {', '.join(absent)} in the template is not known"
            lines.append(f"{where}; add --cluster, or use --output patch")
            continue
        operations = [step for row, said in known if said is not None for step in _steps(workload, row, said)]
        body = json.dumps(operations, separators=(",", ":"))
        target = f"{workload.kind.lower()} {workload.name} -n {workload.namespace}"
        lines.append(f"kubectl patch {target} --type json -p '{body}'")
    return "\n".join(lines)


def _steps(workload: OwnerObject, row: Recommendation, said: dict[str, Any]) -> list[dict[str, Any]]:
    template = "/spec/jobTemplate/spec/template" if workload.kind == "CronJob" else "/spec/template"
    path = f"{template}/spec/{said['list']}/{said['index']}"
    merged: dict[str, Any] = {name: dict(amounts) for name, amounts in said["resources"].items() if name != "claims"}
    if claims := said["resources"].get("claims"):
        merged["claims"] = claims
    for name, amounts in resources_of(row).items():
        kept = {**merged.get(name, {}), **amounts}
        merged[name] = {resource: amount for resource, amount in kept.items() if amount is not None}
    return [
        {"op": "test", "path": f"{path}/name", "value": row.container},
        {"op": "replace", "path": f"{path}/resources", "value": {k: v for k, v in merged.items() if v}},
    ]
