"""A control plane, and virtual machines that join it. Skipped, with the reason, only where none can run."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster import node_image
from lab.cluster.node_image import NodeImage
from lab.cluster.plane import ClusterPlane
from lab.support.control_plane import binaries
from tests.conftest import TREE


def unavailable(why: str) -> None:
    """In CI all parts can be had, so a missing one is a failure."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="session")
def image() -> NodeImage:
    try:
        why = node_image.missing()
    except LookupError as error:
        why = str(error)
    if why:
        unavailable(f"no virtual node: {why}")
    return node_image.ready(print)


@pytest.fixture
def plane() -> Iterator[ClusterPlane]:
    """With the agent's manifests of deploy/ and the stock scheduler."""
    try:
        binaries()
    except LookupError as error:
        unavailable(f"no control plane: {error}")
    with tempfile.TemporaryDirectory(prefix="carico-") as folder:  # short: a socket lies in it
        plane = ClusterPlane(Path(folder))
        try:
            plane.start()
            plane.start_controllers()
            plane.start_scheduler()
            plane.apply(*sorted((TREE / "deploy/base").glob("*.yaml")))
            yield plane
        finally:
            plane.stop()
