"""run Jobs that do not fit at home in another cluster, exactly once

Without a verb it runs the service. `status` and `plan` read the clusters and write nothing; `recall` brings a Job home;
`forget --fenced` starts a Job at home whose target is lost: use it only when nothing can run there any more.

A target is a table [burst.targets.NAME] with kubeconfig, context, region, machine, namespaces, host_paths, image_s,
data_s_per_gb, autoscales_s, provisioner, deadline_s, boot_s, max_nodes, node_cpu, node_memory_gb and node_pods.

examples:
  carico burst --config /etc/carico/config.toml
  carico burst plan --config /etc/carico/config.toml
  carico burst status --json | jq .targets
  carico burst recall default/train-7
  carico burst forget default/train-7 --fenced
"""

import argparse
import asyncio
import json
import logging
import sys
from typing import Any

from carico_agent.command import add_config, complain, load_settings
from carico_agent.settings import BadSettings, Settings, override

VERBS = ("status", "plan", "recall", "forget")


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("verb", nargs="?", choices=VERBS, help="default: run the service")
    parser.add_argument("job", nargs="?", metavar="JOB", help="NAMESPACE/NAME, or a name in namespace default")
    parser.add_argument("--fenced", action="store_true", help="forget: confirm that nothing can run at the target")
    parser.add_argument("--json", action="store_true", help="status, plan: everything as JSON")
    parser.add_argument("--kubeconfig", metavar="FILE", help="of the home cluster; default: the Pod's own account")
    parser.add_argument("--listen", metavar="HOST:PORT", help="listen here instead of at the configured address")
    parser.add_argument("--verbose", action="store_true", help="log more")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    settings = override(settings, "burst", kubeconfig=given.kubeconfig, listen=given.listen)
    if usage := _usage(given):
        complain(usage)
        return 2
    level = logging.DEBUG if given.verbose else logging.INFO if given.verb is None else logging.ERROR
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    from carico_agent.lib.kube.errors import KubeError

    try:
        return _go(given, settings)
    except BadSettings as bad:
        for error in bad.errors:
            complain(error)
        return 2
    except (OSError, LookupError, ValueError, KubeError) as error:
        complain(str(error))
        return 1


def _usage(given: argparse.Namespace) -> str:
    if given.verb in ("recall", "forget") and not given.job:
        return f"burst {given.verb}: which JOB?"
    if given.verb in (None, "status", "plan") and given.job:
        return f"burst {given.verb or ''}: takes no JOB".replace("  ", " ")
    if given.verb == "forget" and not given.fenced:
        return (
            "burst forget: the Job starts at home while its copy may still run, unless nothing can run at the target "
            "any more. If that is certain, add --fenced"
        )
    return ""


def _go(given: argparse.Namespace, settings: Settings) -> int:
    from carico_agent.burst import daemon as burst

    if given.verb is None:

        async def whole_life() -> None:
            await burst.BurstDaemon(settings).run()

        asyncio.run(whole_life())
        return 0
    if given.verb in ("status", "plan"):
        seen = asyncio.run(burst.look(settings))
        if given.json:
            print(json.dumps(seen, indent=2))
        else:
            print(describe(seen, given.verb == "plan"))
        return 0 if all(target["answers"] for target in seen["targets"].values()) else 1
    return _bring_home(given, settings)


def _bring_home(given: argparse.Namespace, settings: Settings) -> int:
    from carico_agent.burst.daemon import bring_home
    from carico_agent.burst.objects import State
    from carico_agent.burst.protocol import Intent

    namespace, _, name = given.job.rpartition("/")
    namespace = namespace or "default"
    wish = Intent.RECALL if given.verb == "recall" else Intent.FORGET
    outcome = asyncio.run(bring_home(settings, namespace, name, wish))
    if outcome is None or outcome.job is None:
        complain(f"there is no Job {namespace}/{name} at home")
        return 1
    state = outcome.job.ledger.state
    if state == State.HOME and outcome.job.deleting:
        print(f"{namespace}/{name} is deleted")
        return 0
    if state == State.HOME:
        print(f"{namespace}/{name} is at home")
        return 0
    why = outcome.verdict.why or ("it has ended" if state == State.DONE else "")
    complain(f"{namespace}/{name} is {outcome.job.finished or state}: {why}")
    return 1


def describe(seen: dict[str, Any], plan: bool) -> str:
    """Targets and Jobs for humans."""
    lines = []
    for name, target in seen["targets"].items():
        price = "no price" if target["price_per_h"] is None else f"{target['price_per_h']:g}/h"
        extra = f", {target['add']} nodes would be added" if plan and target["add"] else ""
        lines.append(
            f"target {name}: {target['condition']}; {target['nodes']} nodes, {price}, {target['copies']} Jobs{extra}"
        )
    for job in seen["jobs"]:
        where = f" → {job['to']}" if job["to"] else ""
        why = f"  ({job['why']})" if job["why"] else ""
        lines.append(f"{job['namespace']}/{job['name']}: {job['state']}{where}{why}")
        if plan:
            lines += [
                f"    {option['target']}: cost {option['cost']:.4f}, starts in {option['elsewhere_s']:.0f} s"
                for option in job["options"]
            ]
    return "\n".join(lines) or "no Jobs may move, and there is no target"
