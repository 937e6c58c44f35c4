"""run Jobs that do not fit at home in another cluster, exactly once

Without a verb it runs the service. Verbs that only read: `status`, `plan`, `explain JOB` (why it is where it is),
`check JOB` (what it needs at each target, and whether that is there), `logs JOB` (its output at the target), `inject
FILE` (a Job's manifest with the steps that fetch and publish its models, for home; `-`: standard input). Verbs that
act: `move JOB --to TARGET`, `recall JOB`, and `forget JOB --fenced`, which starts a Job at home whose target is lost:
use it only when nothing can run there any more.

A target is a table [burst.targets.NAME] with kubeconfig, context, region, machine, machines, spot, namespaces,
host_paths, copy, image_s, data_s_per_gb, autoscales_s, provisioner, deadline_s, boot_s, max_nodes, min_nodes,
node_cpu, node_memory_gb and node_pods. One without a kubeconfig is made by its provisioner when Jobs need it.

examples:
  carico burst --config /etc/carico/config.toml
  carico burst plan --config /etc/carico/config.toml
  carico burst status --json | jq .targets
  carico burst explain default/train-7
  carico burst logs default/train-7
  carico burst move default/train-7 --to cloud
  carico burst recall default/train-7
  carico burst forget default/train-7 --fenced
  carico burst inject train.yaml | kubectl apply -f -
"""

import argparse
import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from carico_agent.command import add_config, complain, load_settings
from carico_agent.settings import BadSettings, Settings, override

LOOKS, ACTS = ("status", "plan", "explain", "check", "logs"), ("move", "recall", "forget")
INJECT = "inject"
OF_A_JOB = (*LOOKS[2:], *ACTS, INJECT)


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("verb", nargs="?", choices=(*LOOKS, *ACTS, INJECT), help="default: run the service")
    parser.add_argument(
        "job", nargs="?", metavar="JOB", help="NAMESPACE/NAME, or a name in namespace default; inject: a file"
    )
    parser.add_argument("--fenced", action="store_true", help="forget: confirm that nothing can run at the target")
    parser.add_argument("--to", metavar="TARGET", help="move: the target; needed where there are several")
    parser.add_argument("--json", action="store_true", help="status, plan, explain, check, logs: everything as JSON")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="of the home cluster; default: the Pod's own account, else $KUBECONFIG or ~/.kube/config",
    )
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
    if given.verb in OF_A_JOB and not given.job:
        return f"burst {given.verb}: which JOB?"
    if given.verb in (None, "status", "plan") and given.job:
        return f"burst {given.verb or ''}: takes no JOB".replace("  ", " ")
    if given.to and given.verb != "move":
        return "burst: --to belongs to `carico burst move JOB --to TARGET`"
    if given.verb == "forget" and not given.fenced:
        return (
            "burst forget: the Job starts at home while its copy may still run, unless nothing can run at the target "
            "any more. If that is certain, add --fenced"
        )
    return ""


def _go(given: argparse.Namespace, settings: Settings) -> int:
    from carico_agent.burst import by_hand
    from carico_agent.burst.daemon import BurstDaemon

    if given.verb is None:

        async def whole_life() -> None:
            await BurstDaemon(settings).run()

        asyncio.run(whole_life())
        return 0
    if given.verb == INJECT:
        return _inject(given.job, settings)
    if given.verb in ("status", "plan"):
        seen = asyncio.run(by_hand.look(settings))
        if given.json:
            print(json.dumps(seen, indent=2))
        else:
            print(describe(seen, given.verb == "plan"))
        return 0 if all(target["answers"] for target in seen["targets"].values()) else 1
    namespace, _, name = given.job.rpartition("/")
    namespace = namespace or "default"
    if given.verb in LOOKS:
        return _look_at(given, settings, namespace, name)
    if given.verb == "move":
        return _move(given, settings, namespace, name)
    return _bring_home(given, settings, namespace, name)


def _inject(file: str, settings: Settings) -> int:
    import yaml

    from carico_agent.burst.daemon import data_steps
    from carico_agent.burst.inject import with_steps
    from carico_agent.burst.ordering import created

    text = sys.stdin.read() if file == "-" else Path(file).read_text()
    try:
        found = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError as error:
        raise ValueError(f"{file}: {error}") from error
    steps = data_steps(settings.burst)
    made = [created(with_steps(one, steps)) if one.get("kind") == "Job" else one for one in found]
    print(yaml.safe_dump_all(made, sort_keys=False), end="")
    return 0


def _absent(namespace: str, name: str) -> int:
    complain(f"there is no Job {namespace}/{name} at home")
    return 1


def _look_at(given: argparse.Namespace, settings: Settings, namespace: str, name: str) -> int:
    """explain, check, logs."""
    from carico_agent.burst import by_hand

    if given.verb == "logs":
        return _logs(given, settings, namespace, name)
    if given.verb == "check":
        found = asyncio.run(by_hand.check(settings, namespace, name))
        if found is None:
            return _absent(namespace, name)
        print(json.dumps(found, indent=2) if given.json else describe_check(found))
        return 0 if any(all(fine for _, fine in lines) for lines in found.values()) else 1
    seen = asyncio.run(by_hand.explain(settings, namespace, name))
    if seen is None:
        complain(f"{namespace}/{name} is no Job that may move: it must exist and match {settings.burst.selector}")
        return 1
    print(json.dumps(seen, indent=2) if given.json else describe_job(seen))
    return 0


def _logs(given: argparse.Namespace, settings: Settings, namespace: str, name: str) -> int:
    from carico_agent.burst import by_hand

    found = asyncio.run(by_hand.logs(settings, namespace, name))
    if found is None:
        return _absent(namespace, name)
    if given.json:
        print(json.dumps([one.__dict__ for one in found], indent=2))
    elif not found:
        complain(
            f"no logs of {namespace}/{name}: it has not run elsewhere; `kubectl logs job/{name}` has those of home"
        )
    for one in () if given.json else found:
        print(f"==> {one.pod} {one.container}" + (f" ({one.why_not})" if one.why_not else ""))
        print(one.text, end="" if one.text.endswith("\n") else "\n")
    return 0 if found else 1


def _move(given: argparse.Namespace, settings: Settings, namespace: str, name: str) -> int:
    from carico_agent.burst import by_hand
    from carico_agent.burst.objects import State

    targets = list(settings.burst.targets)
    if not given.to and len(targets) != 1:
        complain(f"burst move: --to which target? There are {', '.join(targets) or 'none'}")
        return 2
    to = given.to or targets[0]
    outcome = asyncio.run(by_hand.move(settings, namespace, name, to))
    if outcome is None or outcome.job is None:
        return _absent(namespace, name)
    if outcome.job.ledger.state in (State.AWAY, State.DONE) and outcome.job.ledger.to == to:
        print(f"{namespace}/{name} is {outcome.job.finished or 'away'} at {to}")
        return 0
    complain(f"{namespace}/{name} stays at home: {outcome.verdict.why or outcome.job.ledger.note}")
    return 1


def _bring_home(given: argparse.Namespace, settings: Settings, namespace: str, name: str) -> int:
    from carico_agent.burst.by_hand import bring_home
    from carico_agent.burst.objects import State
    from carico_agent.burst.protocol import Intent

    wish = Intent.RECALL if given.verb == "recall" else Intent.FORGET
    outcome = asyncio.run(bring_home(settings, namespace, name, wish))
    if outcome is None or outcome.job is None:
        return _absent(namespace, name)
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


def describe_job(seen: dict[str, Any]) -> str:
    """One Job for humans."""
    where = (" → " if seen["state"] == "home" else " at ") + seen["to"] if seen["to"] else ""
    lines = [f"{seen['namespace']}/{seen['name']}: {seen['state']}{where}"]
    lines += [f"  why: {seen['why']}"] if seen["why"] else []
    lines += [f"  home: {seen['home']}"] if seen["home"] else []
    for option in seen["options"]:
        cost = f"cost {option['cost']:.4f}, starts in {option['elsewhere_s']:.0f} s"
        lines.append(f"  {option['target']}: {option['why_not'] or cost}")
    for pod in seen["pods"]:
        lines.append(f"  Pod {pod['name']}: {pod['phase']}" + (f" on {pod['node']}" if pod["node"] else ""))
        lines += [f"    {why}" for why in pod["why"]]
    return "\n".join(lines)


def describe_check(found: dict[str, list[tuple[str, bool]]]) -> str:
    """What a Job needs at each target."""
    lines = []
    for target, needs in found.items():
        lines.append(f"{target}: " + ("takes it" if all(fine for _, fine in needs) else "does not take it"))
        lines += [f"  {'has' if fine else 'NO '} {text}" for text, fine in needs]
    return "\n".join(lines) or "there is no target"
