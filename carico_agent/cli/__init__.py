"""`carico`: one command for everything. It finds the commands of the products and dispatches; each imports only what it
needs.

A command is a module in a product's folder `commands`: its docstring is the help, `arguments(parser)` declares, and
`run(given)` returns the exit code. A module whose name begins with an underscore is no command.
"""

import argparse
import importlib
import pkgutil
import sys
from difflib import get_close_matches
from pathlib import Path

import carico_agent
from carico_agent import __version__
from carico_agent.command import to_exit_code


def _find() -> dict[str, str]:
    """The module of every command, by name. Nothing is imported: the folders are only listed."""
    found = {}
    for folder in carico_agent.__path__:
        for commands in sorted(Path(folder).glob("*/commands")):
            for _, name, _ in pkgutil.iter_modules([str(commands)]):
                if not name.startswith("_"):
                    found[name] = f"carico_agent.{commands.parent.name}.commands.{name}"
    return dict(sorted(found.items()))


MODULES = _find()
COMMANDS = tuple(MODULES)

EXAMPLES = """examples:
  carico demo                           the number beside the truth, on this machine, in a minute
  carico agent                          run here, print a line a second
  carico status                         how many more Pods fit now
  carico top                            the same, live
  carico page                           a page in the browser: the number, and why it is not larger
  carico agent --record day.trace.gz    record all readings
  carico progress                       jobs: how far, how much work is left, when they end
  carico replay day.trace.gz            run it through the model again
  carico install --systemd              install a hardened service
  carico doctor                         what this node offers, what is missing and what to do
  carico extender --kubeconfig FILE     let kube-scheduler ask for nodes with room
  carico plane --kubeconfig FILE        how busy the control plane is, and one remedy

exit codes: 0 fine, 1 the answer is bad (missing, stale, invalid), 2 wrong usage"""


def parser(wanted: tuple[str, ...] = COMMANDS) -> argparse.ArgumentParser:
    """The command line; `wanted`: modules of the commands that it knows."""
    top = argparse.ArgumentParser(
        prog="carico",
        description="How many more Pods can this node take, right now?",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"carico {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name in wanted:
        module = importlib.import_module(MODULES[name])
        help_text = (module.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(
            name.replace("_", "-"),
            help=help_text,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.arguments(sub)
        sub.set_defaults(run=module.run, usage=sub)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    return to_exit_code(lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(words: list[str]) -> int:
    name = words[0].replace("-", "_") if words else ""
    if words and not words[0].startswith("-") and name not in COMMANDS:
        near = get_close_matches(words[0], [one.replace("_", "-") for one in COMMANDS], 1)
        meant = f", did you mean {near[0]}?" if near else "."
        parser(()).error(f"there is no command {words[0]!r}{meant} `carico --help` lists all")
    # a daemon does not keep the other thirty commands in memory
    given, unknown = parser((name,) if name in COMMANDS else COMMANDS).parse_known_args(words)
    if unknown:  # with the usage of the command, not of all
        given.usage.error(f"unrecognized arguments: {' '.join(unknown)}")
    return int(given.run(given))
