"""the control plane: how busy each part is, who costs most, and how many seats it needs

Without an action it asks an API server for its metrics and says what it found. `solve` sizes by hand, from a table.

examples:
  carico plane --kubeconfig ~/.kube/config
  carico plane solve --table f.csv --requests 60000 --core-seconds 300 --window 60 --cores 6 --availability 0.999
"""

import argparse

from carico_agent.cli import _plane_solve


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action")
    _plane_solve.arguments(actions.add_parser("solve", help="seats and queue from a table", description=__doc__))


def run(given: argparse.Namespace) -> int:
    if given.action == "solve":
        return _plane_solve.run(given)
    return 2
