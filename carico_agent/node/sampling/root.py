"""Where proc/ and sys/ are found, and files of theirs that stay open.

Why descriptors are kept and not reopened: /proc/stat, meminfo and pressure/cpu together take 18 µs by `pread` and 32 µs
with open and close (development machine, Linux 6.18).
"""

import errno
import os

# Not there, not compiled in, switched off (psi=0 answers EOPNOTSUPP to the read of a cgroup's file), or gone.
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENODEV, errno.ENXIO})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})


SMALL_BYTES = 448
"""Python keeps objects of up to 512 bytes in memory of its own, and asks the C library for larger ones."""


class Absent(Exception):
    """This node does not offer a signal; the message names the knob or permission that would bring it."""


class KernelFile:
    """A file of the kernel, read again and again from its beginning through one descriptor.

    `until`: what stands behind this text is not wanted; empty: all of it is. `size`: of the first read [bytes]; up to
    SMALL_BYTES the text lies among Python's small objects, and a tick allocates nothing else.
    """

    __slots__ = ("_until", "fd", "path", "size")

    def __init__(self, path: str, size: int = 4096, until: bytes = b"") -> None:
        self.path = path
        self.size, self._until = size, until
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """All that is wanted of the text. After an error, or after close(), the next read opens the file again."""
        try:
            if self.fd < 0:
                self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(self.fd, self.size, 0)
            while not self.suffices(data):  # one instant, so from the beginning again
                self.size *= 2
                data = os.pread(self.fd, self.size, 0)
        except OSError:
            self.close()
            raise
        return data

    def suffices(self, data: bytes) -> bool:
        """Whether a read of `size` has brought all that is wanted."""
        return len(data) < self.size or (bool(self._until) and self._until in data)

    def read_records(self) -> bytes:
        """As read(), for files of many records, which the kernel hands out a page at a time (/proc/diskstats)."""
        data = self.read()
        while data and (more := os.pread(self.fd, self.size, len(data))):
            data += more
        return data

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)


class Root:
    """The folder that holds proc/ and sys/: "/" on a node, "/host" in a container, a temporary one in tests.

    >>> Root("/").join("proc/stat"), Root("/host").join("proc/stat")
    ('/proc/stat', '/host/proc/stat')
    """

    def __init__(self, path: str | os.PathLike[str] = "/") -> None:
        self.path = os.fspath(path)
        self.live = os.path.realpath(self.path) == "/"

    def join(self, relative: str) -> str:
        return os.path.join(self.path, relative)

    def exists(self, relative: str) -> bool:
        return os.path.exists(self.join(relative))

    def list(self, relative: str) -> list[str]:
        """Names in a folder, sorted; none if it is not there or may not be read."""
        try:
            return sorted(os.listdir(self.join(relative)))
        except OSError:
            return []

    def open(self, relative: str, remedy: str = "", size: int = 4096, until: bytes = b"") -> KernelFile:
        """Open for repeated reading. Absent, with the remedy, if this node does not have it or does not show it."""
        try:
            return KernelFile(self.join(relative), size, until)
        except OSError as error:
            raise absence(error, relative, remedy) from error


def absence(error: OSError, what: str, remedy: str = "") -> Exception:
    """What an error of the first read or open means: Absent, or the error itself (which counts as failed)."""
    if error.errno in _FORBIDDEN:
        return Absent(f"{what}: no permission; run as root, or let the service read {error.filename or what}")
    if error.errno in _MISSING:
        return Absent(f"{what}: {remedy}" if remedy else f"{what}: not on this node; mount it or set node.root")
    return error
