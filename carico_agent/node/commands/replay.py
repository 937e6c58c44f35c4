"""run a recorded trace through the model again

Make one with `carico agent --record FILE`. The trace goes through the same code as live telemetry.

examples:
  carico replay day.trace.gz
  carico replay day.trace.gz --estimator paper-joint --json
"""

import argparse
import json
import os
from dataclasses import replace

from carico_agent.command import add_config, complain, load_settings


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="a file made by `carico agent --record`")
    add_config(parser)
    parser.add_argument("--estimator", help="use this estimator instead of the configured one")
    parser.add_argument("--json", action="store_true", help="one JSON object per second of the trace")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from carico_agent.core.estimators import ESTIMATORS
    from carico_agent.node.pipeline import replay
    from carico_agent.node.publish.line import human_line
    from carico_agent.node.publish.status import as_json, status_of
    from carico_agent.node.sampling import BadTrace, read_trace
    from carico_agent.settings import override

    if given.estimator and given.estimator not in ESTIMATORS:
        complain(f"--estimator {given.estimator}: known are {', '.join(ESTIMATORS)}")
        return 2
    try:
        header, rows = read_trace(given.trace)
        for second in replay(header, rows, override(settings, "model", estimator=given.estimator)):
            status = status_of(header.node, header.resources, second.estimate, second.usage.detail)
            status = replace(status, time=clock(second.t))
            print(json.dumps({**as_json(status), "t": second.t}) if given.json else human_line(status))
    except (OSError, BadTrace) as error:
        complain(str(error))
        return 1
    return 0


def clock(t: float) -> str:
    """Seconds of the trace's own clock, in the place where a status has its time of day."""
    return f"{'':11}{int(t // 3600) % 100:02d}:{int(t // 60) % 60:02d}:{int(t) % 60:02d}"
