"""print a shell completion script, made from this command line

examples:
  source <(carico completion bash)      in ~/.bashrc
  source <(carico completion zsh)       in ~/.zshrc
  carico completion fish                in ~/.config/fish/config.fish, followed by `| source`
"""

import argparse
from collections.abc import Iterator

FILES = ("FILE", "PATH", "SOCKET")
FOLDERS = ("FOLDER",)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh", "fish"))


def run(given: argparse.Namespace) -> int:
    import shtab

    from carico_agent.cli import parser

    top = parser()
    for action in all_actions(top):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(top, given.shell))
    return 0


def all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option and argument, also of the commands below."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from all_actions(below)
