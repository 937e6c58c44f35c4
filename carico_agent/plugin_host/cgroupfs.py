"""One cgroup file, read or written through its folder's descriptor.

Identity is the inode: the folder is opened first and its inode compared, then the file is opened relative to it. So a
cgroup that dies and is reborn under the same path between two calls, or between look and write, is never touched.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

LARGEST_BYTES = 1 << 20


class Gone(Exception):
    """The cgroup has ended (or another one has its path now)."""


class CgroupFiles:
    """The kernel's side. Tests replace it to inject faults."""

    def inode(self, cgroup: str) -> int:
        with _folder(cgroup, None) as folder:
            return os.fstat(folder).st_ino

    def read(self, cgroup: str, inode: int | None, key: str) -> str:
        """The file's text without trailing whitespace; Gone, or OSError (no such file: controller not enabled)."""
        with _folder(cgroup, inode) as folder:
            file = os.open(key, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            try:
                return _read_all(file).decode().rstrip()
            finally:
                os.close(file)

    def write(self, cgroup: str, inode: int, key: str, value: str) -> None:
        """One write(2). O_NONBLOCK: newer kernels then set memory.high without reclaiming in our thread."""
        with _folder(cgroup, inode) as folder:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_TRUNC | os.O_CLOEXEC
            file = os.open(key, flags, dir_fd=folder)
            try:
                data = f"{value}\n".encode()
                if os.write(file, data) != len(data):
                    raise OSError(errno.EIO, f"short write to {cgroup}/{key}")
            finally:
                os.close(file)


def _read_all(file: int) -> bytes:
    """Large files of the kernel (memory.stat, cgroup.procs) come in several pieces."""
    pieces = []
    while piece := os.read(file, LARGEST_BYTES):
        pieces.append(piece)
    return b"".join(pieces)


@contextmanager
def _folder(cgroup: str, inode: int | None) -> Iterator[int]:
    try:
        folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Gone(f"{cgroup} has ended") from error
    try:
        found = os.fstat(folder)
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
