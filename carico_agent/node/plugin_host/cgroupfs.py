"""One cgroup file, read or written through its folder's descriptor.

Identity is the inode: the folder is opened first and its inode compared, then the file is opened relative to it. So a
cgroup that dies and is reborn under the same path between two calls, or between look and write, is never touched.

What is put back by root comes from a file that belongs to the agent's user. So nothing in it is believed: the path is
walked without following links, the file's name has no slash, and the file system is the kernel's cgroup2.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

LARGEST_BYTES = 1 << 20


class Gone(Exception):
    """The cgroup has ended (or another one has its path now)."""


class Untrusted(OSError):
    """What was asked for is no file of a cgroup."""


class CgroupFiles:
    """The kernel's side. Tests replace it to inject faults."""

    def inode(self, cgroup: str) -> int:
        with _folder(cgroup, None) as folder:
            return os.fstat(folder).st_ino

    def read(self, cgroup: str, inode: int | None, key: str) -> str:
        """The file's text without trailing whitespace; Gone, or OSError (no such file: controller not enabled)."""
        with _folder(cgroup, inode) as folder:
            file = os.open(_name(key), os.O_RDONLY | _FLAGS, dir_fd=folder)
            try:
                return _read_all(file).decode().rstrip()
            finally:
                os.close(file)

    def write(self, cgroup: str, inode: int, key: str, value: str) -> None:
        """One write(2). O_NONBLOCK: newer kernels then set memory.high without reclaiming in our thread."""
        with _folder(cgroup, inode) as folder:
            file = os.open(_name(key), os.O_WRONLY | os.O_TRUNC | _FLAGS, dir_fd=folder)
            try:
                data = f"{value}\n".encode()
                if os.write(file, data) != len(data):
                    raise OSError(errno.EIO, f"short write to {cgroup}/{key}")
            finally:
                os.close(file)


@contextmanager
def _folder(cgroup: str, inode: int | None) -> Iterator[int]:
    try:
        folder = _open_folder(cgroup)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Gone(f"{cgroup} has ended") from error
    try:
        found = os.fstat(folder)
        if not is_cgroup2(found.st_dev):
            raise Untrusted(errno.EPERM, f"{cgroup} is not in a cgroup v2 tree")
        if found.st_nlink == 0 or inode not in (None, found.st_ino):
            raise Gone(f"{cgroup} is another cgroup now (inode {found.st_ino}, not {inode})")
        yield folder
    except OSError as error:
        # ENODEV: the cgroup died after the file was opened; ENOENT with no links left: it died before.
        if error.errno == errno.ENODEV or (error.errno == errno.ENOENT and os.fstat(folder).st_nlink == 0):
            raise Gone(f"{cgroup} has ended") from error
        raise
    finally:
        os.close(folder)


_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW


def _name(key: str) -> str:
    if "/" in key or key in ("", ".", ".."):
        raise Untrusted(errno.EPERM, f"{key!r} is no name of a file")
    return key


def _open_folder(path: str) -> int:
    """A descriptor of an absolute path, reached without following a link."""
    parts = path.split("/")
    if parts[0] or not path.strip("/") or any(part in (".", "..") for part in parts):
        raise Untrusted(errno.EPERM, f"{path!r} is no absolute path of a cgroup")
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in filter(None, parts):
        above = folder
        try:
            folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
    return folder


def is_cgroup2(device: int) -> bool:
    """Whether `device` is a mounted cgroup2 file system, by /proc/self/mountinfo (Python has no statfs magic)."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            left, _, right = line.partition(" - ")
            if left.split()[2] == wanted:
                return right.startswith("cgroup2 ")
    return False


def _read_all(file: int) -> bytes:
    """Large files of the kernel (memory.stat, cgroup.procs) come in several pieces."""
    pieces = []
    while piece := os.read(file, LARGEST_BYTES):
        pieces.append(piece)
    return b"".join(pieces)
