"""Two control planes for all tests here that need them; they skip, with the reason, only where none can be had."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.support.burst_planes import BurstPlane, two_planes
from lab.support.control_plane import binaries
from lab.support.waiting import wait_for
from tests.conftest import TREE

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and "planes" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kube)


@pytest.fixture(scope="session")
def planes_alive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BurstPlane, BurstPlane]]:
    try:
        folder = binaries()
    except LookupError as error:
        pytest.skip(f"no control plane: {error}")
    if not os.access(folder / "kube-controller-manager", os.X_OK):
        pytest.skip("no kube-controller-manager: run `make kube`")
    with two_planes(tmp_path_factory.mktemp("burst")) as (home, cloud):
        home.apply(TREE / "deploy/burst/home.yaml")
        cloud.apply(TREE / "deploy/burst/target.yaml")
        yield home, cloud


@pytest.fixture
def planes(planes_alive: tuple[BurstPlane, BurstPlane]) -> Iterator[tuple[BurstPlane, BurstPlane]]:
    """Both without Jobs, Pods and nodes, before and after."""
    for plane in planes_alive:
        clear(plane)
    yield planes_alive
    for plane in planes_alive:
        clear(plane)


def clear(plane: BurstPlane) -> None:
    admin, jobs, pods = plane.admin, "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
    for job in admin.get(jobs)["items"]:
        if job["metadata"].get("finalizers"):
            admin.merge(f"{jobs}/{job['metadata']['name']}", {"metadata": {"finalizers": None}})
    admin.delete("/apis/batch/v1/namespaces/default/cronjobs")
    admin.request("DELETE", f"{jobs}?propagationPolicy=Background")
    admin.delete("/api/v1/nodes")

    def gone() -> bool:
        admin.request("DELETE", f"{pods}?gracePeriodSeconds=0")
        return not admin.get(pods)["items"] and not admin.get(jobs)["items"]

    wait_for(gone, "Jobs and Pods are gone")
