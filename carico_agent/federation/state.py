"""What an aggregator knows, in a file: the nodes' own last messages, read back through the checks of the wire."""

import asyncio
import logging
import time
from pathlib import Path

from google.protobuf.message import DecodeError

from carico_agent.federation import wire
from carico_agent.federation.contribution import Rejected
from carico_agent.federation.contributions import ContributionTable
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.lib.supervise.files import replace_file

log = logging.getLogger(__name__)

PERIOD_S = 2.0


def save(path: str, table: ContributionTable) -> None:
    """Replace the file atomically."""
    _write(path, _snapshot(table))


async def save_periodically(path: str, table: ContributionTable) -> None:
    while True:
        await asyncio.sleep(PERIOD_S)
        nodes = _snapshot(table)
        await asyncio.to_thread(_write, path, nodes)


def load(path: str, table: ContributionTable, silence_s: float) -> int:
    """Take in the nodes of a file that are not silent for too long; how many. A broken file is logged and not used."""
    try:
        with open(path, "rb") as file:
            saved = pb.SavedState.FromString(file.read())
    except FileNotFoundError:
        return 0
    except (OSError, DecodeError) as error:
        log.warning("state %s: not used: %s", path, error)
        return 0
    now_s, now_ns = time.monotonic(), time.time_ns()
    count = 0
    for node in saved.nodes:
        age_s = (now_ns - node.received_unix_nano) / 1e9
        if not 0 <= age_s <= silence_s:
            continue
        try:
            table.apply(*wire.read_contribution(node.contribution), node.contribution, now_s - age_s)
            count += 1
        except Rejected as error:
            log.warning("state %s: a node is not used: %s", path, error)
    log.info("state %s: %d of %d nodes are still valid", path, count, len(saved.nodes))
    return count


def _snapshot(table: ContributionTable) -> list[tuple[bytes, float]]:
    return [(record.raw, record.received_s) for record in table.nodes.values()]


def _write(path: str, nodes: list[tuple[bytes, float]]) -> None:
    offset_s = time.time() - time.monotonic()
    saved = pb.SavedState()
    for raw, received_s in nodes:
        saved.nodes.add(contribution=raw, received_unix_nano=int((received_s + offset_s) * 1e9))
    replace_file(Path(path), saved.SerializeToString(), 0o600, synced=True)
