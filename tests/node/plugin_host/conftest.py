"""Tests here write to ordinary folders; that the real ones are cgroup2 is tested in test_plugin_restore.py."""

import pytest

from carico_agent.node.plugin_host import cgroupfs


@pytest.fixture(autouse=True)
def any_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file system passes for cgroup2, unless a test wants to see the difference."""
    if request.node.get_closest_marker("real_cgroup2") is None:
        monkeypatch.setattr(cgroupfs, "is_cgroup2", lambda device: True)
