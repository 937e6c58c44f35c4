"""Man pages from the command line itself, as docs/commands.md: `python -m lab.release.man FOLDER`.

carico(1) lists the commands; each has a page of its own with its help and its options.
"""

import argparse
import gzip
import re
import sys
from pathlib import Path

from carico_agent import __version__
from carico_agent.cli import EXAMPLES, parser


def pages() -> dict[str, str]:
    """The text of every page by its name."""
    top = parser()
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    found = {"carico.1": _overview(top, commands)}
    for name, sub in commands.choices.items():
        title, _, rest = (sub.description or "").partition("\n")
        body, _, examples = rest.partition("\nexamples:\n")
        sections = [("SYNOPSIS", _literal(_usage(sub))), ("DESCRIPTION", _prose(body) or escaped(title))]
        sections += [("OPTIONS", _options(sub)), ("EXAMPLES", _literal(examples))]
        sections.append(("SEE ALSO", ".BR carico (1)"))
        found[f"carico-{name}.1"] = _page(f"carico-{name}", title, sections)
    return dict(sorted(found.items()))


def _overview(top: argparse.ArgumentParser, commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> str:
    listed = [
        f".TP\n.BR carico\\-{escaped(choice.dest)} (1)\n{escaped(choice.help or '')}"
        for choice in sorted(commands._choices_actions, key=lambda choice: choice.dest)
    ]
    sections = [
        ("SYNOPSIS", ".B carico\n.I COMMAND\n[options]"),
        ("DESCRIPTION", escaped(top.description or "")),
        ("COMMANDS", "\n".join(listed)),
        ("EXAMPLES", _literal(EXAMPLES.partition("\n")[2].partition("\n\nexit codes")[0])),
        ("EXIT STATUS", "0 fine, 1 the answer is bad (missing, stale, invalid), 2 wrong usage."),
    ]
    return _page("carico", "how many more Pods can this node take, right now?", sections)


def _page(name: str, title: str, sections: list[tuple[str, str]]) -> str:
    parts = [f'.TH {name.upper()} 1 "" "carico {__version__}"', ".SH NAME", f"{escaped(name)} \\- {escaped(title)}"]
    for heading, text in sections:
        if text.strip():
            parts += [f".SH {heading}", text.rstrip()]
    return "\n".join(parts) + "\n"


def _usage(sub: argparse.ArgumentParser) -> str:
    return re.sub(r"^usage: ", "", sub.format_usage())


def _options(sub: argparse.ArgumentParser) -> str:
    parts = []
    for action in sub._actions:
        if action.help == argparse.SUPPRESS:
            continue
        value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
        names = ", ".join(action.option_strings)
        label = f"{names} {value}".strip() if names else value
        text = (action.help or "") % {"default": action.default, "prog": sub.prog} if action.help else ""
        parts.append(f".TP\n.B {escaped(label)}\n{escaped(text) or escaped(label)}")
    return "\n".join(parts)


def _prose(text: str) -> str:
    return "\n.PP\n".join(escaped(" ".join(part.split())) for part in text.strip().split("\n\n") if part.strip())


def _literal(text: str) -> str:
    lines = text.strip("\n").splitlines()
    return ".nf\n" + "\n".join(escaped(line) for line in lines) + "\n.fi" if lines else ""


def escaped(text: str) -> str:
    """A line that begins with a dot or an apostrophe would be a request.

    >>> print(escaped(".venv/bin/carico --once"))
    \\&.venv/bin/carico \\-\\-once
    """
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def write(folder: Path) -> None:
    """Compressed, as distributions have them; the same bytes every time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        page = folder / f"{name}.gz"
        page.write_bytes(gzip.compress(text.encode(), mtime=0))
        page.chmod(0o644)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
