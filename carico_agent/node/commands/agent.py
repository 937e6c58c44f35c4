"""run the agent on this node, in the foreground

Samples the kernel ten times a second, answers on a unix socket, and prints one line per second (not under systemd).
Needs no root, no containerd and no Kubernetes, and uses them where they are available.

examples:
  carico agent
  carico agent --config config.toml --record day.trace.gz
  carico agent --replay day.trace.gz --speed 60
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from carico_agent.command import add_config, complain, load_settings
from carico_agent.settings import BadSettings, Settings, load, override


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--socket", metavar="PATH", help="listen here instead of at the configured path")
    parser.add_argument("--containerd", metavar="SOCKET", help="containerd's socket (default: the usual paths)")
    parser.add_argument(
        "--aggregator",
        metavar="ADDR",
        action="append",
        help="learn with others through this aggregator, host:port or unix:PATH; may be repeated",
    )
    parser.add_argument("--node", metavar="NAME", help="publish under this name")
    parser.add_argument("--kubeconfig", metavar="FILE", help="publish on the Kubernetes node of that name, too")
    parser.add_argument("--record", metavar="FILE", help="record all readings (.gz to compress) for `carico replay`")
    parser.add_argument("--replay", metavar="FILE", help="read a recorded trace instead of the kernel")
    parser.add_argument("--speed", metavar="X", type=float, default=1.0, help="replay this many times faster")
    parser.add_argument("--repeat", action="store_true", help="start the trace again when it ends")
    parser.add_argument("--quiet", action="store_true", help="print no line per second")
    parser.add_argument("--verbose", action="store_true", help="log more")


def flags_over(settings: Settings, given: argparse.Namespace) -> Settings:
    """Flags override the file."""
    settings = override(settings, "socket", path=given.socket)
    settings = override(settings, "containerd", socket=given.containerd)
    settings = override(settings, "kubernetes", kubeconfig=given.kubeconfig)
    settings = override(settings, "federation", aggregators=tuple(given.aggregator) if given.aggregator else None)
    return override(settings, "node", name=given.node)


@contextmanager
def no_certificates() -> Iterator[None]:
    """aiohttp reads the system's CA certificates while it is imported and keeps them: 2 MB. We serve a unix socket;
    every part that speaks TLS makes a context of its own, and aiohttp's default one then trusts no server."""
    before = {name: os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
    os.environ.update(dict.fromkeys(before, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    if given.speed <= 0:
        complain(f"--speed {given.speed}: must be positive")
        return 2
    logging.basicConfig(
        level=logging.DEBUG if given.verbose else logging.INFO,
        stream=sys.stderr,
        format="%(levelname)s %(name)s: %(message)s",
    )
    # numpy's BLAS starts a thread per core, each with its own memory, for matrices of 4×20: one is plenty.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with no_certificates():
        from carico_agent.node.agent import Agent
        from carico_agent.node.source import SourceOptions
    from carico_agent.lib.kube.errors import BadAccess
    from carico_agent.node.sampling import BadTrace

    quiet = given.quiet or bool(os.environ.get("INVOCATION_ID"))  # set by systemd: the journal needs no ticker

    async def whole_life() -> None:
        agent = Agent(
            flags_over(settings, given),
            SourceOptions(given.record, given.replay, given.speed, given.repeat),
            None if quiet else lambda line: print(line, flush=True),
            (lambda: flags_over(load(given.config), given)) if given.config else None,
        )
        await agent.run()

    try:
        asyncio.run(whole_life())
    except BadSettings as bad:  # a plugin's own settings
        for one in bad.errors:
            complain(one)
        return 2
    except (OSError, BadTrace, LookupError, BadAccess) as error:
        complain(str(error))
        return 1
    return 0
