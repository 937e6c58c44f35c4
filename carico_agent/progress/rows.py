"""From jobs as the agent tells them to rows for a reader: the Pods of one Job are one row. Pure."""

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]


def rows(jobs: Iterable[Row]) -> list[Row]:
    """One row per Job, or per Pod that is of none; the one that ends last first, then those whose end is unknown."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for job in jobs:
        name = job.get("job") or ""
        groups.setdefault((job["namespace"], f"job {name}" if name else f"pod {job['name']}"), []).append(job)
    found = [group[0] | {"pods": 1} if len(group) == 1 else together(group) for group in groups.values()]
    return sorted(found, key=lambda row: (row["left_s"] is None, -(row["left_s"] or 0.0)))


def together(pods: list[Row]) -> Row:
    """The Pods of one Job: done, CPU and rate are sums, and it ends with the last of them.

    >>> one = {"namespace": "ml", "name": "a-1", "job": "a", "done": 5.0, "total": 10.0, "left_s": 9.0}
    >>> one |= {"left_cpu_s": 4.0}
    >>> one |= {"left_low_s": 8.0, "left_high_s": 10.0, "cores": 0.5, "per_s": 1.0, "end": "2026-01-01T00:00:09Z"}
    >>> one |= {"uncertain": False, "stale": False, "ended": False, "source": "cpu", "runs": 1, "age_s": 0.1}
    >>> row = together([one, one | {"name": "a-2", "done": 1.0, "left_s": 30.0, "end": "2026-01-01T00:00:30Z"}])
    >>> row["name"], row["pods"], row["ratio"], row["left_s"], row["end"], row["left_cpu_s"]
    ('a', 2, 0.3, 30.0, '2026-01-01T00:00:30Z', 8.0)
    """
    done, total = sum(pod["done"] for pod in pods), sum(pod["total"] for pod in pods)
    unknown = any(pod["left_s"] is None for pod in pods)
    return pods[0] | {
        "name": pods[0]["job"],
        "pods": len(pods),
        "done": done,
        "total": total,
        "ratio": round(done / total, 4),
        **{key: _sum(pods, key) for key in ("left_cpu_s", "cores", "per_s")},
        **{key: _max(pods, key) for key in ("left_s", "left_low_s", "left_high_s", "end", "age_s", "runs")},
        "uncertain": unknown or any(pod["uncertain"] for pod in pods),
        "stale": all(pod["stale"] for pod in pods),
        "ended": all(pod["ended"] for pod in pods),
        "source": max(pods, key=lambda pod: pod["left_s"] or 0.0)["source"],
    }


def _known(pods: list[Row], key: str) -> list[Any]:
    return [pod[key] for pod in pods if pod[key] is not None]


def _sum(pods: list[Row], key: str) -> float | None:
    found = _known(pods, key)
    return sum(found) if found else None


def _max(pods: list[Row], key: str) -> Any:
    return max(_known(pods, key), default=None)
