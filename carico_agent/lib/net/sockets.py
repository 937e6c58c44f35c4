"""Listening on a unix socket: with its rights from the first moment on, and after a crash without help."""

import grp
import os
import socket
import stat
from pathlib import Path

BACKLOG = 256
"""Connections that wait in the kernel: what acceptor.py takes at once, so that a flood holds others back for one of its
rests only."""


def bind_unix(path: Path, group: str = "", mode: int = 0o660, replace: bool = False) -> socket.socket:
    """A listening, non-blocking socket at `path`, of `mode` and `group` if given. A dead one is replaced; a living
    one, or another kind of file, is refused (FileExistsError).

    `replace`: whatever is there goes, except a folder. For a folder that others may write to: what they put there must
    not keep us from starting, and that no other agent runs has been found out elsewhere.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_listen(path, error) from error
    _check_folder(path.parent)
    if replace:
        path.unlink(missing_ok=True)
    else:
        clear_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    before = os.umask(0o777 & ~mode)
    try:
        listener.bind(str(path))
    except OSError as error:  # the kernel names no path, and Python's "AF_UNIX path too long" none, either
        listener.close()
        raise _cannot_listen(path, error) from error
    finally:
        os.umask(before)
    if group:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    listener.listen(BACKLOG)
    return listener


def _cannot_listen(path: Path, error: OSError) -> OSError:
    return type(error)(f"cannot listen on {path}: {error.strerror or error}; choose another path")


def _check_folder(folder: Path) -> None:
    """Clients believe the process that listens there, so no other user may put a socket in its place. In the temporary
    folder another user may have made ours before us."""
    found = folder.stat()
    for owner in (folder.lstat().st_uid, found.st_uid):  # of a link, too: its owner may lead it elsewhere
        if owner not in (0, os.geteuid()):
            raise PermissionError(f"{folder} belongs to user {owner}, not to this one; choose another --socket")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(f"{folder} can be written by every user; chmod o-w {folder}, or choose another --socket")


def clear_stale(path: Path) -> None:
    """Remove a socket on which no process listens, and a link to nothing; raises FileExistsError for a living one and
    for other files. Never waits: a living one may have a full queue."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(f"{path} exists and is not a socket; remove it or choose another path")
    except FileNotFoundError:
        path.unlink(missing_ok=True)
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except BlockingIOError:  # its queue is full: it lives
            pass
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise FileExistsError(f"another agent is listening on {path}; stop it or choose another path")
