"""print a commented configuration with all defaults

examples:
  carico print-config > config.toml
"""

import argparse

from carico_agent.settings import example


def arguments(parser: argparse.ArgumentParser) -> None:
    return


def run(given: argparse.Namespace) -> int:
    print(example(), end="")
    return 0
