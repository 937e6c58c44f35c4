"""What several commands share: complaints, and an agent to ask."""

import argparse
import codecs
import os
import shutil
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path

from carico_agent import settings
from carico_agent.client import AgentClient, default_path

PLAIN = {
    "–": "-",
    "—": "-",
    "−": "-",
    "∞": "inf",
    "→": "->",
    "×": "x",
    "…": "...",
    "◄": "<",
    "█": "#",
    "▲": "^",
    "▼": "v",
    "▁": "_",
    "▂": ".",
    "▃": "-",
    "▄": "=",
    "▅": "+",
    "▆": "*",
    "▇": "%",
    "▓": "=",
    "░": ".",
}
"""What stands for our characters in a terminal whose locale has none of them; any other character becomes `?`."""


class OutputLost(Exception):
    """The standard output cannot be written. It is no OSError, so that no command takes it for trouble with a file."""

    def __init__(self, why: OSError) -> None:
        super().__init__(f"the output cannot be written: {why.strerror}")
        self.reader_left = isinstance(why, BrokenPipeError)


class _Output(TextIOWrapper):
    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputLost(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputLost(error) from error


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(PLAIN.get(each, "?") for each in error.object[error.start : error.end]), error.end


def to_exit_code(run: Callable[[], int]) -> int:
    """Run a whole command: its output is legible in any locale, and output that cannot be written is no traceback."""
    codecs.register_error("carico.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="carico.plain")
    if type(sys.stdout) is TextIOWrapper:
        own = sys.stdout
        sys.stdout = _Output(own.buffer, own.encoding, own.errors, None, own.line_buffering, own.write_through)
    try:
        try:
            return run()
        finally:  # also where argparse has printed its help and exits
            if sys.stdout is not None:  # `carico status >&-`
                sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # of the standard error: `carico doctor 2>&1 | head`
        _drop_output()
        return 0
    except OutputLost as lost:
        _drop_output()
        if lost.reader_left:  # `carico replay … | head`
            return 0
        complain(str(lost))
        return 1


def _drop_output() -> None:
    """What is still in the buffer goes nowhere: Python would try to write it once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str) -> None:
    print(f"carico: {text}", file=sys.stderr)


def trouble(error: Exception) -> str:
    """What went wrong, in the form of other tools: `FILE: No such file or directory`."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def typed() -> str:
    """How `carico` is called in the reader's shell: by its name where the PATH led here, else by its path.
    (`make demo` runs `.venv/bin/carico` with a PATH of its own, which the reader's shell does not have.)"""
    if Path(sys.argv[0]).name != "carico":
        return f"{sys.executable} -m carico_agent"
    return "carico" if shutil.which("carico") == sys.argv[0] else sys.argv[0]


def add_socket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--socket", metavar="PATH", help="the agent's socket (default: $CARICO_SOCKET, or where it usually is)"
    )


def ask(given: argparse.Namespace) -> AgentClient:
    return AgentClient(given.socket or default_path())


def ask_configured(given: argparse.Namespace) -> AgentClient | None:
    """As `ask`, of a command with --config: the agent that runs with that file. None after complaining about it."""
    if given.socket or not given.config:
        return ask(given)
    found = load_settings(given.config)
    return None if found is None else AgentClient(str(found.socket_path))


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="TOML settings; see `carico print-config`")


def load_settings(path: str | None) -> settings.Settings | None:
    """Settings from `path`, or the defaults; None after complaining about every error."""
    if path is None:
        return settings.Settings()
    try:
        return settings.load(path)
    except settings.BadSettings as bad:
        for error in bad.errors:
            complain(error)
        return None
