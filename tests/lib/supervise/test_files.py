"""Files that must survive: what is on the disk, and in which order."""

import errno
import os
from pathlib import Path

import pytest

from carico_agent.lib.supervise.files import replace_file


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was synced, and what was renamed to what, as it happens."""
    seen: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        seen.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        sync(descriptor)

    def note_replace(old: Path, new: Path) -> None:
        seen.append(("replace", Path(new).name))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    return seen


def test_content_is_synced_before_its_name_and_the_name_after(tmp_path: Path, steps: list[tuple[str, str]]) -> None:
    folder = tmp_path / "state"
    replace_file(folder / "kept", b"new", 0o600, synced=True)
    draft = f".kept.{os.getpid()}"
    assert steps == [("sync", draft), ("replace", "kept"), ("sync", "state")]
    assert (folder / "kept").read_bytes() == b"new"
    assert (folder / "kept").stat().st_mode & 0o777 == 0o600


def test_without_it_nothing_waits_for_the_disk(tmp_path: Path, steps: list[tuple[str, str]]) -> None:
    replace_file(tmp_path / "shown", b"new")
    assert steps == [("replace", "shown")]


def test_a_full_disk_keeps_the_old_content_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file(tmp_path / "kept", b"old", synced=True)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(tmp_path / "kept", b"new", synced=True)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("kept", b"old")]
