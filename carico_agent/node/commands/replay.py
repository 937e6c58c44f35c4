"""run a recorded trace through the model again

Make one with `carico agent --record FILE`. The trace goes through the same code as live telemetry.

examples:
  carico replay day.trace.gz
  carico replay day.trace.gz --method carico --json
  carico replay day.trace.gz --method carico --estimator paper-joint
"""

import argparse
import json
import os
from dataclasses import replace

from carico_agent.command import add_config, complain, load_settings, trouble


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="a file made by `carico agent --record`")
    add_config(parser)
    parser.add_argument("--method", help="measured or carico, instead of the configured one")
    parser.add_argument("--estimator", help="use this estimator of the method instead of the configured one")
    parser.add_argument("--json", action="store_true", help="one JSON object per second of the trace")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from carico_agent.node.pipeline import replay
    from carico_agent.node.publish.line import human_line
    from carico_agent.node.publish.status import as_json, status_of
    from carico_agent.node.sampling import BadTrace, read_trace
    from carico_agent.node.settings.node import METHODS
    from carico_agent.settings import override

    for option, known in (
        ("method", list(METHODS)),
        ("estimator", [name for names in METHODS.values() for name in names]),
    ):
        if (chosen := getattr(given, option)) and chosen not in known:
            complain(f"--{option} {chosen}: known are {', '.join(known)}")
            return 2
    settings = override(settings, "model", method=given.method, estimator=given.estimator)
    if unused := settings.model.without_effect():
        complain("; ".join(unused))
        return 2
    try:
        header, rows = read_trace(given.trace)
        for second in replay(header, rows, settings):
            status = status_of(header.node, header.resources, second.estimate, second.usage.detail)
            status = replace(status, time=clock(second.t))
            print(json.dumps({**as_json(status), "t": second.t}) if given.json else human_line(status))
    except (OSError, BadTrace) as error:
        complain(trouble(error))
        return 1
    return 0


def clock(t: float) -> str:
    """Seconds of the trace's own clock, in the place where a status has its time of day."""
    return f"{'':11}{int(t // 3600) % 100:02d}:{int(t // 60) % 60:02d}:{int(t) % 60:02d}"
