"""docs/commands.md, made from the command line itself: `python -m lab.support.commands_page`; a test compares."""

import argparse
from pathlib import Path

from carico_agent.cli import parser
from carico_agent.kubectl import command as kubectl

PAGE = Path(__file__).parents[2] / "docs/commands.md"
HEAD = """# Every command

After this page you can choose a command and start from one of its examples. `carico COMMAND --help` lists all options.
`python -m lab.support.commands_page` makes this page from the command line itself.
Exit codes: 0 fine, 1 the answer is bad (missing, stale, invalid, does not fit), 2 wrong usage.
"""


def page() -> str:
    top = parser()
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    blocks = [HEAD]
    for name, sub in sorted(commands.choices.items()):
        blocks.append(f"## carico {name}\n\n```\n{(sub.description or '').strip()}\n```\n")
    blocks.append(f"## kubectl carico\n\n```\n{(kubectl.__doc__ or '').strip()}\n```\n")
    return "\n".join(blocks)


if __name__ == "__main__":
    PAGE.write_text(page())
