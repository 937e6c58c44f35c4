"""Files that others read: replaced atomically, never half written."""

import os
from pathlib import Path


def replace_file(path: Path, encoded: bytes, mode: int = 0o644) -> None:
    """Replace `path` by `encoded`. A reader sees the old content or the new, never a mixture; on a full disk the old
    one stays and nothing else is left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(encoded)
        draft.chmod(mode)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
