"""etcd restored from a backup under a running extender: Leases, Pods and resourceVersions go back in time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from carico_agent.lib.kube.names import RESOURCE
from lab.support.control_plane import Plane, binaries, running
from lab.support.kube_admin import AdminError
from lab.support.waiting import wait_for
from lab.support.webhook import Webhook
from tests.conftest import TREE
from tests.kube.test_webhook_trust import bind

pytestmark = pytest.mark.kube
NODES, PLACES = 3, 4


@pytest.fixture
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Not the one of the other tests: its past is changed."""
    try:
        binaries()
    except LookupError as error:
        pytest.skip(f"no control plane: {error}")
    for plane in running(tmp_path_factory.mktemp("restored")):
        plane.apply(*sorted((TREE / "deploy/base").glob("*.yaml")))
        yield plane


def offer(plane: Plane, number: int) -> None:
    plane.admin.add_node(f"n{number}")
    quantity = {RESOURCE: str(PLACES)}
    plane.admin.merge(f"/api/v1/nodes/n{number}/status", {"status": {"capacity": quantity, "allocatable": quantity}})


def bound_one_by_one(plane: Plane, names: Iterator[str], node: str, count: int) -> int:
    """Tries to bind that many new Pods to a node; how many were let in."""
    done = 0
    for _ in range(count):
        plane.admin.add_pod(name := next(names), scheduler="nobody")
        try:
            bind(plane, name, node)
            done += 1
        except AdminError as error:
            assert "no room" in str(error), error
    return done


def test_the_extender_sees_the_store_as_it_is_and_overfills_nothing(own_plane: Plane, tmp_path: Path) -> None:
    """Before, its watches waited for a version of the future, and nobody was placed until the store had come so far."""
    plane, names = own_plane, (f"pod-{number}" for number in range(1000))
    for number in range(NODES):
        offer(plane, number)
    webhook = Webhook(plane, tmp_path)
    try:
        wait_for(lambda: webhook.counted("leads") == 1, "the extender leads")
        assert bound_one_by_one(plane, names, "n0", 2) == 2
        backup = plane.back_up()
        wait_for(lambda: webhook.counted("leads") == 1, "the extender leads again")
        assert bound_one_by_one(plane, names, "n0", 3) == 2  # full
        assert bound_one_by_one(plane, names, "n1", PLACES) == PLACES
        for number in range(200):  # the store moves on, far beyond the backup
            plane.admin.merge("/api/v1/nodes/n2", {"metadata": {"annotations": {"x": str(number)}}})
        wait_for(lambda: webhook.counted("places") == 8, "all Pods are seen")
        plane.restore(backup)
        wait_for(lambda: webhook.counted("places") == 2, "the Pods of the backup are seen, and no others", 60)
        wait_for(lambda: webhook.counted("leads") == 1, "the extender leads the restored cluster", 60)
        for node, free in (("n0", 2), ("n1", PLACES), ("n2", PLACES)):
            assert bound_one_by_one(plane, names, node, PLACES + 1) == free, node
        assert plane.admin.bound() == {f"n{number}": PLACES for number in range(NODES)}
    finally:
        webhook.stop()
