"""The status in a file, for readers that want no socket: replaced atomically, never half written."""

import os
from pathlib import Path


def write_status_file(path: Path, encoded: bytes) -> None:
    """Replace `path` by `encoded`. A reader sees the old or the new status, never a mixture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(encoded + b"\n")
    draft.chmod(0o644)
    draft.replace(path)
