"""list which Pods are throttled, why, and which remedy helps

Needs the throttling plugin: plugins.enabled = ["throttling"].

examples:
  carico throttling
  carico throttling web-* --request-ms 50
"""

import argparse
import json
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.command import add_socket, ask, complain


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", nargs="?", help="a name, namespace/name or pattern")
    parser.add_argument("--request-ms", metavar="MS", type=float, help="CPU time of one request, for its latency")
    add_socket(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(given: argparse.Namespace) -> int:
    question = {"pod": given.pod, "request_ms": given.request_ms}
    query = urlencode({key: value for key, value in question.items() if value is not None})
    try:
        answer = ask(given).request("GET", f"/v1/plugins/throttling?{query}")
    except (AgentError, AgentUnavailable) as error:
        off = isinstance(error, AgentError) and error.status == HTTPStatus.NOT_FOUND
        complain('the throttling plugin is off: set plugins.enabled = ["throttling"]' if off else str(error))
        return 1
    if answer["state"] != "running":
        complain(f"the throttling plugin does not run: {answer['state']}: {answer['detail'] or 'no reason was given'}")
        return 1
    print(json.dumps(answer["report"], indent=2) if given.json else describe(answer["report"]))
    return 0


def describe(report: dict[str, Any]) -> str:
    """A line per Pod, and below it what to do."""
    lines = []
    for row in report.get("pods", ()):  # nothing before the plugin's first look
        limit = f"limit {row['limit_cores']:g} CPUs" if row["limit_cores"] is not None else "no limit"
        used = f"uses {row['used_cores']:.2f} CPUs, {limit}"
        lines.append(f"{row['pod']:40} throttled {row['throttled_ratio']:4.0%}  {used}")
        lines.append(f"    {row['cause']}: {row['remedy']}: {row['text']}")
        if latency := row["latency"]:
            lines.append(
                f"    a request of {latency['request_ms']:g} ms takes {latency['alone_ms']:g} ms alone, "
                f"{latency['parallel_ms']:g} ms beside the others"
            )
            serial = latency.get("serial_ms") or []
            if len(serial) > 1:
                times = ", ".join(f"{value:g}" for value in serial)
                lines.append(f"    one after the other they would take {times} ms")
    return "\n".join(lines) or "no Pod has been measured yet"
