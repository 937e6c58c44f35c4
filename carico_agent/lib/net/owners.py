"""Who could have written a file: what a service runs, or root reads, must not come from a user with fewer rights."""

import os
import stat
from pathlib import Path


def writable_by_others(file: Path) -> str:
    """Who besides root and our own user could have written this file, or nothing. Looks at the file itself, where links
    lead, and at every folder above it.

    >>> writable_by_others(Path("/etc/passwd"))
    ''
    """
    try:
        whole = file.resolve(strict=True)
        for path in (whole, *whole.parents):
            if why := _loose(path, path.stat()):
                return why
    except OSError as error:
        return f"{file}: {error.strerror}"
    return ""


def _loose(path: Path, found: os.stat_result) -> str:
    if found.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to user {found.st_uid}"
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if shared and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):  # /tmp: others remove nothing
        return f"{path} may be written by others (mode {found.st_mode & 0o7777:o})"
    return ""
