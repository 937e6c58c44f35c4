"""Files that others read, or that must survive: replaced atomically, never half written."""

import os
from pathlib import Path


def replace_file(path: Path, encoded: bytes, mode: int = 0o644, synced: bool = False) -> None:
    """Replace `path` by `encoded`. A reader sees the old content or the new, never a mixture; on a full disk the old
    one stays and nothing else is left.

    `synced`: also after a power failure. That waits for the disk; without it a crash of ours is survived, not one of
    the machine (the new file may then be empty).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(encoded)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        draft.chmod(mode)
        draft.replace(path)
        if synced:
            _sync_folder(path.parent)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """The new name of a file is kept by its folder: without this a power failure may bring the old file back."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
