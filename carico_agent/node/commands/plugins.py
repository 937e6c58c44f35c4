"""list plugins: installed, running, refused

Asks the agent on this node. Without an agent it lists the installed plugins.

examples:
  carico plugins
  carico plugins --json
"""

import argparse
import json
from typing import Any

from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.command import add_config, add_socket, ask, load_settings


def arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    try:
        overview = ask(given).request("GET", "/v1/plugins")
    except (AgentError, AgentUnavailable):
        overview = installed(settings.plugins.site_folder)
    print(json.dumps(overview, indent=2) if given.json else describe(overview))
    return 0


def installed(site_folder: str) -> dict[str, Any]:
    from carico_agent.node.plugin_host.load import find

    plugins = [{"name": item.name, "state": "installed", "detail": item.origin} for item in find(site_folder).values()]
    return {"plugins": plugins, "owners": [], "recent": [], "dry_run": True}


def describe(overview: dict[str, Any]) -> str:
    lines = [f"{p['name']:14} {p['state']:10} {p.get('detail', '')}".rstrip() for p in overview["plugins"]]
    lines += [f"left alone: {', '.join(o['keys'])}: {o['why']}" for o in overview["owners"]]
    for row in overview["recent"][-10:]:
        lines.append(f"{row['state']:10} {row['cgroup']}/{row['key']}: {row['old']} → {row['new']}  {row['detail']}")
    if overview["dry_run"]:
        lines.append("dry-run: plugins write nothing (set plugins.dry_run = false to let them write)")
    return "\n".join(lines)
