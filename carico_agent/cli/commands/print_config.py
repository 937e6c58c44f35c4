"""print a commented configuration with its defaults

Without PRODUCT, the settings that people change. With PRODUCT, all settings of that product; `all`: of all products.

examples:
  carico print-config > config.toml
  carico print-config agent
  carico print-config all
"""

import argparse

from carico_agent.settings import PRODUCTS, example, example_of

ALL = "all"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "product", nargs="?", metavar="PRODUCT", choices=[*PRODUCTS, ALL], help=", ".join([*PRODUCTS, ALL])
    )


def run(given: argparse.Namespace) -> int:
    if given.product is None:
        print(example(), end="")
    else:
        print(example_of(*(PRODUCTS if given.product == ALL else (given.product,))), end="")
    return 0
