"""`carico recommend apply`: what would be resized; with --yes it is, once or again and again."""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from carico_agent.client import AgentError, AgentUnavailable
from carico_agent.command import complain
from carico_agent.lib.kube.access import of_user
from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.errors import KubeError
from carico_agent.lib.net.buckets import TokenBucket
from carico_agent.lib.trace.file import BadTrace
from carico_agent.recommend.advice import Recommendation
from carico_agent.recommend.apply.applier import Applier, described
from carico_agent.recommend.apply.decide import FITS, NOTHING, ApplyRules, PodResize
from carico_agent.recommend.apply.journal import BadJournal, ResizeJournal
from carico_agent.recommend.checkpoint import BadCheckpoint
from carico_agent.recommend.sources.histories import NoHistory
from carico_agent.recommend.sources.prometheus import PrometheusError

Rows = Callable[[], list[Recommendation]]
TROUBLE = (BadTrace, BadCheckpoint, NoHistory, PrometheusError, AgentError, AgentUnavailable, KubeError, OSError)


def journal_path(given: argparse.Namespace) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(given.journal or f"{state}/carico/resizes.jsonl").expanduser()


def show_apply(given: argparse.Namespace, rows: Rows) -> int:
    """Exit code 1 when something could not be read, or not be put back."""
    try:
        return asyncio.run(_run(given, rows))
    except (BadJournal, *TROUBLE) as error:
        complain(str(error))
        return 1


async def _run(given: argparse.Namespace, rows: Rows) -> int:
    access = of_user(given.kubeconfig, given.context)
    rules = ApplyRules(given.min_change, given.max_step, given.allow_restart, given.min_days, given.allow_hpa)
    rate = TokenBucket(per_s=given.max_changes / 60.0, burst=max(given.max_changes, 1.0))
    async with KubeClient(access, TokenBucket(per_s=50.0, burst=300), timeout_s=30.0) as client:
        applier = Applier(client, ResizeJournal(journal_path(given)), rules, rate, _say, time.monotonic)
        if given.restore:
            return int(await applier.restore() > 0)
        if not given.yes:
            _print(await applier.plan(await asyncio.to_thread(rows)), given)
            return 0
        if given.every is None:
            _print(await applier.round(await asyncio.to_thread(rows)), given)
            return 0
        return await _again_and_again(applier, given, rows)


async def _again_and_again(applier: Applier, given: argparse.Namespace, rows: Rows) -> int:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    while not stopped.is_set():
        try:
            changes = await applier.round(await asyncio.to_thread(rows))
            _say(_counted(changes))
        except TROUBLE as error:  # the next round may find it again
            complain(str(error))
        try:
            await asyncio.wait_for(stopped.wait(), given.every)
        except TimeoutError:
            continue
    if given.keep:
        _say(f"{len(applier.journal.open)} Pods stay as they are; `carico recommend apply --restore` puts them back")
        return 0
    return int(await applier.restore() > 0)


def _counted(changes: Sequence[PodResize]) -> str:
    found: dict[str, int] = {}
    for change in changes:
        found[change.verdict] = found.get(change.verdict, 0) + 1
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(found.items())) or "no Pod with a recommendation"


def _print(changes: Sequence[PodResize], given: argparse.Namespace) -> None:
    if given.output == "json":
        print(json.dumps({"dry_run": not given.yes, "pods": [_object(change) for change in changes]}, indent=2))
        return
    for change in sorted(changes, key=lambda change: (change.verdict == NOTHING, change.verdict != FITS)):
        resources = f": {described(change.before)} → {described(change.after)}" if change.after else ""
        why = f" ({change.why})" if change.why else ""
        print(f"{change.verdict:18}  {change.pod.key} on {change.pod.node}{resources}{why}")
    print(_counted(changes) + ("" if given.yes else "; nothing was changed (--yes does it)"))


def _object(change: PodResize) -> dict[str, Any]:
    return {
        "pod": change.pod.key,
        "node": change.pod.node,
        "workload": change.pod.owner.full_name,
        "verdict": change.verdict,
        "why": change.why or None,
        "before": change.before,
        "after": change.after,
        "added_cores": round(change.delta["cpu"], 3),
        "added_bytes": round(change.delta["memory"]),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
