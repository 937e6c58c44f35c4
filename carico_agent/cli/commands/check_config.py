"""check a configuration file: all errors at once, each with its path

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
    from carico_agent.extender.policies import load

    try:
        load(settings.extender.policy, settings.extender.policies)
    except BadSettings as bad:
        for error in bad.errors:
            complain(error)
        return 1
    print(f"{given.file}: fine")
    return 0
