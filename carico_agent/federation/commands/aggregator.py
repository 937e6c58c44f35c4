"""run an aggregation server: nodes learn from each other

Agents join with `carico agent --aggregator ADDR`. Without TLS it listens on loopback or a unix socket only.

examples:
  carico aggregator --listen 127.0.0.1:7400 --state contributions
  carico aggregator --listen 127.0.0.1:7400 --status
"""

import argparse
import asyncio
import json
import logging
import os
import sys

from carico_agent.command import add_config, complain, load_settings
from carico_agent.settings import Settings, override


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--listen", metavar="ADDR", help="host:port or unix:PATH")
    parser.add_argument("--peer", metavar="ADDR", action="append", help="another aggregator; may be repeated")
    parser.add_argument("--state", metavar="FILE", help="keep the nodes' contributions here across restarts")
    parser.add_argument("--http", metavar="ADDR", help="serve /metrics and /healthz here")
    parser.add_argument("--status", action="store_true", help="print the state of a running aggregator (at --listen)")
    parser.add_argument("--json", action="store_true", help="with --status: print JSON, for scripts")


def run(given: argparse.Namespace) -> int:
    loaded = load_settings(given.config)
    if loaded is None:
        return 2
    settings = override(
        loaded,
        "aggregator",
        listen=given.listen,
        state=given.state,
        http=given.http,
        peers=tuple(given.peer) if given.peer else None,
    )
    return ask_status(settings, given.json) if given.status else serve(settings)


def serve(settings: Settings) -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else every failed handshake is logged
    from carico_agent.federation.daemon import AggregatorDaemon
    from carico_agent.lib.supervise.notify import Notifier

    try:
        asyncio.run(AggregatorDaemon(settings.aggregator).run(ready=lambda address: Notifier().ready()))
    except (OSError, ValueError) as error:
        complain(str(error))
        return 1
    return 0


def ask_status(settings: Settings, as_json: bool) -> int:
    from carico_agent.federation.status import describe, fetch_status
    from carico_agent.lib.net.tls import TlsFiles

    own = settings.aggregator
    try:
        tls = TlsFiles.mutual(own.tls_ca, own.tls_cert, own.tls_key)
        status = asyncio.run(fetch_status(own.listen, tls))
    except (OSError, ValueError) as error:
        complain(f"no aggregator answers: {error}")
        return 1
    print(json.dumps(status, indent=2) if as_json else describe(status))
    return 0
