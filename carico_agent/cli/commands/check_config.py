"""check a configuration file: all errors at once, each with its path

Also names what the file asks for and this machine does not have: plugins, groups, files, sockets.

examples:
  carico check-config /etc/carico/config.toml
"""

import argparse

from carico_agent.command import complain, load_settings
from carico_agent.settings import BadSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.file)
    if settings is None:
        return 1
    from carico_agent.burst.daemon import problems
    from carico_agent.extender.policies import load
    from carico_agent.node.machine_check import missing_here

    errors = [*missing_here(settings), *problems(settings.burst)]
    try:
        load(settings.extender.policy, settings.extender.policies)
    except BadSettings as bad:
        errors += bad.errors
    for error in errors:
        complain(error)
    if not errors:
        print(f"{given.file}: fine")
    return int(bool(errors))
