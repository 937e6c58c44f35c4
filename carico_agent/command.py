"""What several commands share: complaints, and an agent to ask."""

import argparse
import shutil
import sys
from pathlib import Path

from carico_agent import settings
from carico_agent.client import AgentClient, default_path


def complain(text: str) -> None:
    print(f"carico: {text}", file=sys.stderr)


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
