"""check a configuration file: all errors at once, each with its path

examples:
  carico check-config /etc/carico/config.toml
"""

import argparse

from carico_agent.cli._common import load_settings


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")


def run(given: argparse.Namespace) -> int:
    if load_settings(given.file) is None:
        return 1
    print(f"{given.file}: fine")
    return 0
