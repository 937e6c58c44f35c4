"""print container events as they happen

One line per event: time, topic, Pod, and the number of Pods after it. --json prints what the agent sends.

examples:
  carico events
  carico events --json | jq .topic
"""

import argparse
import json
from typing import Any

from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.command import add_socket, ask, complain


def arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(given: argparse.Namespace) -> int:
    try:
        for event in ask(given).lines("/v1/events", timeout_s=None):
            print(json.dumps(event) if given.json else describe(event), flush=True)
    except (AgentError, AgentUnavailable) as error:
        complain(str(error))
    return 1


def describe(event: dict[str, Any]) -> str:
    where = "/".join(filter(None, (event.get("pod_namespace"), event.get("pod_name")))) or event.get("container_id", "")
    return f"{event['time'][11:23]}  {event['topic']:20} {where:40} Pods {event['count']}"
