"""Files that others read: replaced atomically, never half written."""

import os
from pathlib import Path


def replace_file(path: Path, encoded: bytes, mode: int = 0o644) -> None:
    """Replace `path` by `encoded`. A reader sees the old content or the new, never a mixture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(encoded)
    draft.chmod(mode)
    draft.replace(path)
