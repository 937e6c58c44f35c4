"""compare the number with the truth, on this machine, in a minute

Starts and stops busy child processes in bursts, counts each as a Pod, measures it as the agent measures containers, and
prints one line per second: carico's number and the true one. Needs no root, no containers and no Kubernetes, writes
nothing, and keeps all cores busy while it runs. Ctrl-C ends it early; it ends all its child processes.

Exit code 1 when there was nothing to compare: it was ended too early, or this machine cannot be measured.

examples:
  carico demo
  carico demo --seconds 20
  carico demo --page --seconds 600    the same as charts, in a browser
  carico demo --json | jq .error
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
import webbrowser
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING

from carico_agent.command import complain, typed

if TYPE_CHECKING:  # numpy loads while the first lines can be read already
    from carico_agent.node.demo.demo import DemoResult, Second

MIN_S, MAX_S = 4, 3600
INTRODUCTION = """\
Real work on this machine ({cores} cores) for {seconds} s: loops that compute pi come and go, and each is a Pod.
A machine is full when two threads per core want to run, so {fits} loops fit here while nothing else runs:
truth = {fits} - loops - others, at least 0. carico does not know that; it reads the kernel and measures each loop.

  time  loops  others  truth   carico: room for                 off by"""
NEXT = (
    ("demo --page", "the same once more, as charts in a browser"),
    ("agent", "run it here; containers are found by themselves. Then, elsewhere: status, top, page"),
    ("print-config", "see [processes]: without containers, systemd units or commands count as Pods"),
    ("doctor", "what this machine offers, what is missing and which setting brings it"),
    ("install --systemd", "install a hardened service (--dry-run says what it would do)"),
)
"""What to type after `carico`, and what it brings."""
BUSY = (
    "Others wanted {:.1f} cores meanwhile, more or less each second: on a quieter machine the two numbers are closer."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", metavar="N", type=int, default=60, help="how long (default: 60)")
    parser.add_argument("--seed", metavar="N", type=int, help="the same bursts again")
    parser.add_argument("--page", action="store_true", help="open the node's page in a browser meanwhile")
    parser.add_argument("--json", action="store_true", help="one JSON object per second, the last one is the summary")


def run(given: argparse.Namespace) -> int:
    if not MIN_S <= given.seconds <= MAX_S:
        complain(f"--seconds {given.seconds}: between {MIN_S} and {MAX_S} is expected")
        return 2
    if not given.json:
        print(introduction(given.seconds), flush=True)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from carico_agent.node.demo.demo import summarize

    try:
        seen = asyncio.run(show(given))
    except (OSError, ValueError) as error:
        complain(f"carico cannot measure this machine: {error}; `carico doctor` says what is missing")
        return 1
    summary = summarize(seen)
    print(json.dumps({"summary": asdict(summary)}) if given.json else conclusion(summary), flush=True)
    return 0 if summary.compared else 1


async def show(given: argparse.Namespace) -> "list[Second]":
    """Print every second as it comes; all of them, or those until Ctrl-C or SIGTERM."""
    from carico_agent.node.demo.demo import run_demo

    seen: list[Second] = []

    async def print_all() -> None:
        offer = offer_page if given.page else None
        async with aclosing(run_demo(given.seconds, given.seed, offer)) as seconds:
            async for second in seconds:
                seen.append(second)
                print(json.dumps(second.as_json()) if given.json else line(second), flush=True)

    printing = asyncio.create_task(print_all())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, printing.cancel)
    await asyncio.wait([printing])
    if not printing.cancelled():
        printing.result()
    elif not given.json:
        print("\nended early", file=sys.stderr)
    return seen


def offer_page(address: str) -> None:
    """In a thread: a browser may take seconds to start, and the seconds go on."""
    print(f"the page: {address}", file=sys.stderr, flush=True)
    threading.Thread(target=webbrowser.open, args=(address,), name="browser", daemon=True).start()


def introduction(seconds: int) -> str:
    cores = os.cpu_count() or 1
    return INTRODUCTION.format(cores=cores, fits=2 * cores, seconds=seconds)


def line(second: "Second") -> str:
    """
    >>> from carico_agent.node.demo.demo import Second
    >>> line(Second(9, 3, 0.14, 0.86, 0.9, 0.7, 1.2, "measured", True))
    '   9 s      3     0.1    0.9   0.9 [0.7–1.2] measured            0.0'
    """
    if second.pod_capacity is None or second.error is None:
        shown, off = "not known yet", ""
    else:
        high = "∞" if second.high is None else f"{second.high:.1f}"
        shown = f"{second.pod_capacity:.1f} [{second.low or 0:.1f}–{high}] {second.mode}"
        off = f"{abs(second.error):.1f}" if second.compared else "(too early)"
    return f"{second.t:4d} s  {second.loops:5d}  {second.others:6.1f}  {second.truth:5.1f}   {shown:<34}{off}".rstrip()


def conclusion(summary: "DemoResult") -> str:
    if not summary.compared:
        return "\nThere was nothing to compare: run it for a few more seconds."
    busy = f"\n{BUSY.format(summary.others)}" if (summary.others or 0.0) >= 1 else ""
    return (
        f"\nOff by {summary.mean_absolute_error:.2f} Pods in the mean, {summary.largest_error:.2f} at most, over"
        f" {summary.compared} s. The interval contained the truth in {summary.inside_ratio:.0%} of all lines.\n"
        f'(Not counted as off, "too early": the first two seconds after loops came or went.){busy}\n'
        f"{what_next(typed())}"
    )


def what_next(carico: str) -> str:
    """
    >>> print(what_next(".venv/bin/carico").splitlines()[2])
      .venv/bin/carico demo --page         the same once more, as charts in a browser
    """
    wide = len(carico) + len("install --systemd") + 3
    return "\n".join(["\nWhat to do next:", *(f"  {f'{carico} {words}':{wide}} {brings}" for words, brings in NEXT)])
