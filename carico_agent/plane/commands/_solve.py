"""Seats and queue of one component from a table, or cores for all components of a machine.

--table with --requests and --core-seconds sizes one component. --components takes a TOML file with a table for each
(kube-apiserver, etcd, kube-scheduler, kube-controller-manager): requests and core_seconds of one window; and, as far as
they are known, table (a CSV file as for --table), waiting, weight, throttled, now_cores, min_cores, from_scheduler and
from_controller. Exit code 1 when a component cannot keep up.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from typing import Any

from carico_agent.command import complain


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table",
        metavar="FILE",
        help="CSV: requests executing, cores used; linear between, constant beyond; - is the standard input",
    )
    parser.add_argument("--components", metavar="FILE", help="TOML: one table per component of the machine")
    parser.add_argument("--requests", metavar="N", type=number(0.0), help="requests in the window")
    parser.add_argument("--core-seconds", metavar="S", type=number(0.0), help="CPU time they took")
    parser.add_argument("--window", metavar="S", type=positive, default=60.0, help="length of the window (60)")
    parser.add_argument(
        "--cores", metavar="C", type=positive, required=True, help="cores the component, or all of them, may use"
    )
    parser.add_argument(
        "--availability", metavar="P", type=share, default=0.999, help="least share of requests not rejected (0.999)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def number(least: float, open_: bool = False) -> Callable[[str], float]:
    """A converter for argparse: a finite number from `least` on."""

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not math.isfinite(value) or value < least or (open_ and value == least):
            raise argparse.ArgumentTypeError(f"{text} must be {'more than' if open_ else 'at least'} {least:g}")
        return value

    return convert


positive = number(0.0, open_=True)


def share(text: str) -> float:
    value = number(0.0)(text)
    if value >= 1:
        raise argparse.ArgumentTypeError(f"{text}: must be below 1; no finite queue never rejects")
    return value


def run(given: argparse.Namespace) -> int:
    if given.components:
        from carico_agent.plane.commands._solve_all import run as run_all

        return run_all(given)
    if None in (given.table, given.requests, given.core_seconds):
        complain("--table, --requests and --core-seconds are needed together; or --components FILE")
        return 2
    from carico_agent.plane.curve import BadTable, parse_table
    from carico_agent.plane.queueing import Load
    from carico_agent.plane.sizing import NoRecommendation, queue_length_limit, size

    try:
        curve = parse_table(_lines(given.table))
        if curve.x[0] > 1:
            complain(f"{given.table}: begins at x = {curve.x[0]:g}; fewer requests are taken to use as many cores")
        sized = size(Load(given.requests, given.core_seconds, given.window), curve, given.cores, given.availability)
    except OSError as error:
        complain(f"{given.table}: {error.strerror}")
        return 2
    except (BadTable, UnicodeDecodeError) as error:
        complain(f"{given.table}: {error}")
        return 2
    except NoRecommendation as error:
        complain(str(error))
        return 1
    result: dict[str, Any] = {
        "seats": sized.seats,
        "queue": sized.queue,
        "queue_length_limit": queue_length_limit(sized.queue),
        "wait_ms": sized.performance.wait_s * 1000,
        "reject_ratio": sized.performance.reject_ratio,
        "cores": sized.cores,
        "steady": sized.steady,
    }
    needed = given.core_seconds / given.window
    if not sized.steady:
        complain(
            f"unsteady: {needed:g} cores are needed, {sized.cores:g} can be used; the queue holds what a window leaves"
        )
    print(json.dumps(result) if given.json else describe(result))
    return 0 if sized.steady else 1


def _lines(table: str) -> list[str]:
    if table == "-":
        return sys.stdin.readlines()
    with open(table, encoding="utf-8-sig") as file:
        return file.readlines()


def describe(result: dict[str, Any]) -> str:
    return (
        f"seats {result['seats']}, queue {result['queue']}: a request takes {result['wait_ms']:.3f} ms, "
        f"{result['reject_ratio']:.4%} are rejected, {result['cores']:g} cores in use at most\n"
        "in a PriorityLevelConfiguration: limitResponse.queuing: {handSize: 6, queues: 64, "
        f"queueLengthLimit: {result['queue_length_limit']}}}"
    )
