"""The journal: what stood in a cgroup file before us, on disk before anything is written.

Append-only JSON lines, each with a checksum; a torn last line is cut off, a damaged one skipped and counted. Folding
the lines gives the *open entries*: files that may hold a value of ours, with the value to put back.

Why a file of lines and no database: the restore must work when the agent, its settings and its libraries are gone
(`restore.pyz`), and an operator must be able to read it with `cat`. Why every intent is synced: only the line that is
on disk when the power fails can undo what was written. An fsync costs milliseconds, and writes are rare.

Events: `intent` (about to write), `applied` (read back as written), `failed` (the file still holds the old value),
`closed` (put back, gone, or another program's now), `open` (an entry carried over by compaction), `action` (nothing to
put back).
"""

import fcntl
import json
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

COMPACT_BYTES = 1 << 20
QUIET_COMPACT_BYTES = 1 << 16
OLD_NAME = "kind"
"""Of the field `event`, before 0.1.0."""


class JournalBusy(Exception):
    """Another process has this journal open: the agent is running."""


class OldJournal(OSError):
    """A journal with the field names of a version before this one: what it holds cannot be put back by this one."""


class Knob(NamedTuple):
    """One file of one cgroup of one boot. Inodes begin again after a reboot, so the boot belongs to the identity."""

    boot: str
    cgroup: str
    inode: int
    key: str


@dataclass(slots=True)
class Entry:
    """A file that may hold a value of ours: `original` is to be put back if one of `ours` stands there."""

    knob: Knob
    original: str
    ours: list[str]
    plugin: str = ""
    reason: str = ""
    applied: bool = False
    """Ours was seen standing there; before that the original may still."""


@dataclass(slots=True)
class Folded:
    """What a journal says once all its lines are read."""

    entries: dict[Knob, Entry] = field(default_factory=dict)
    damaged: int = 0
    good_bytes: int = 0


def encode(record: dict[str, Any]) -> bytes:
    """One line; `crc` is the last field, over the line without it.

    >>> decode(encode({"event": "closed", "n": 1}))
    {'event': 'closed', 'n': 1}
    >>> decode(encode({"event": "closed"}).replace(b"closed", b"opened")) is None
    True
    """
    body = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    return body[:-1] + b',"~crc":"%08x"}\n' % zlib.crc32(body)


def decode(line: bytes) -> dict[str, Any] | None:
    """The record of one line, or None when it is damaged."""
    body, mark, crc = line.rstrip(b"\n").rpartition(b',"~crc":"')
    body += b"}"
    if not mark or crc != b'%08x"}' % zlib.crc32(body):
        return None
    record = json.loads(body)
    return record if isinstance(record, dict) else None


def read_records(path: str | os.PathLike[str]) -> Iterator[dict[str, Any] | None]:
    """Every whole line of a journal, None for damaged ones. A last line without its end was never acted upon."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield decode(line)


def fold(path: str | os.PathLike[str]) -> Folded:
    """The open entries of a journal."""
    folded = Folded()
    for record in read_records(path):
        try:
            if record is None:
                raise ValueError("a damaged line")
            if OLD_NAME in record:
                raise OldJournal(f"{path} is of an older version: put its values back with that one (carico restore)")
            apply(folded.entries, record)
        except (ValueError, KeyError, TypeError):
            folded.damaged += 1
    try:
        data = Path(path).read_bytes()
        folded.good_bytes = data.rfind(b"\n") + 1
    except FileNotFoundError:
        pass
    return folded


def apply(entries: dict[Knob, Entry], record: dict[str, Any]) -> None:
    """What one record means for the open entries. Unknown events are of a later version and change
    nothing."""
    event = record["event"]
    if event == "action" or "key" not in record:
        return
    knob = Knob(_text(record["boot"]), _text(record["cgroup"]), int(record["inode"]), _text(record["key"]))
    entry = entries.get(knob)
    if event == "intent" and entry is None:
        entries[knob] = Entry(knob, _text(record["old"]), [_text(record["new"])], record["plugin"], record["reason"])
    elif event == "intent" and entry is not None:  # until it is applied, the value before it may still stand there
        entry.ours, entry.applied = [_text(record["old"]), _text(record["new"])], False
        entry.plugin, entry.reason = record["plugin"], record["reason"]
    elif event == "applied" and entry is not None:
        entry.ours, entry.applied = [_text(record["new"])], True
    elif event == "failed" and entry is not None:
        entry.ours = [_text(record["old"])]
        if record["old"] == entry.original:
            del entries[knob]
    elif event == "closed":
        entries.pop(knob, None)
    elif event == "open":
        entries[knob] = Entry(
            knob,
            _text(record["original"]),
            [_text(value) for value in record["ours"]] or [""],
            record["plugin"],
            record["reason"],
            record["applied"],
        )


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{value!r} is no text")
    return value


def boot_id(root: str | os.PathLike[str] = "/") -> str:
    """This boot; empty where the kernel does not say (then inode and path must do)."""
    try:
        return (Path(root) / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Journal:
    """The journal, open for appending by this process alone."""

    def __init__(self, path: str | os.PathLike[str], boot: str | None = None) -> None:
        self.path = Path(path)
        self.boot = boot_id() if boot is None else boot
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = open_as_owner(Path(f"{self.path}.lock"), os.O_RDWR)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise JournalBusy(f"{self.path} is in use: the agent is running; it restores when it stops") from error
        try:
            folded = fold(self.path)
        except OldJournal:
            os.close(self._lock)
            raise
        self.entries, self.damaged = folded.entries, folded.damaged
        self._file = self._open()
        self._good_bytes = folded.good_bytes
        self._cut_torn_tail()

    def _open(self) -> int:
        file = open_as_owner(self.path, os.O_RDWR | os.O_APPEND)
        _sync_folder(self.path.parent)
        return file

    def close(self) -> None:
        os.close(self._file)
        os.close(self._lock)

    # What may fail (a full or dying disk) goes through these three, so that tests can make it fail.
    def _write(self, data: bytes) -> int:
        return os.write(self._file, data)

    def _sync(self) -> None:
        os.fsync(self._file)

    def _cut_torn_tail(self) -> None:
        if os.fstat(self._file).st_size > self._good_bytes:
            os.ftruncate(self._file, self._good_bytes)

    def append(self, event: str, sync: bool = True, **fields: Any) -> None:
        """Write one record; when this returns, it is on disk. An OSError means it is not, and must not be relied on."""
        record = {"event": event, "time": round(time.time(), 3), **fields}
        line = encode(record)
        try:
            self._cut_torn_tail()
            if self._write(line) != len(line):
                raise OSError(28, "the journal's disk is full")
            if sync:
                self._sync()
        except OSError:
            self._forget_line()
            raise
        self._good_bytes += len(line)
        apply(self.entries, record)

    def _forget_line(self) -> None:
        """Take back a line that did not reach the disk; if even that fails, the next append tries again."""
        try:
            self._cut_torn_tail()
        except OSError:
            return

    def intent(self, knob: Knob, old: str, new: str, plugin: str, reason: str) -> None:
        self.append("intent", **knob._asdict(), old=old, new=new, plugin=plugin, reason=reason)

    def applied(self, knob: Knob, new: str) -> None:
        self.append("applied", sync=False, **knob._asdict(), new=new)

    def failed(self, knob: Knob, old: str, error: str) -> None:
        self.append("failed", sync=False, **knob._asdict(), old=old, error=error)

    def closed(self, knob: Knob, how: str) -> None:
        self.append("closed", **knob._asdict(), how=how)

    def compact(self, force: bool = False) -> bool:
        """Begin a new file with the open entries only; the history so far stays readable in `journal.1`."""
        if not force and self._good_bytes < (COMPACT_BYTES if self.entries else QUIET_COMPACT_BYTES):
            return False
        fresh = self.path.with_name(self.path.name + ".new")
        lines = [
            encode(
                {
                    "event": "open",
                    "time": round(time.time(), 3),
                    **entry.knob._asdict(),
                    "plugin": entry.plugin,
                    "original": entry.original,
                    "ours": entry.ours,
                    "applied": entry.applied,
                    "reason": entry.reason,
                }
            )
            for entry in self.entries.values()
        ]
        fresh.unlink(missing_ok=True)
        with open(open_as_owner(fresh, os.O_WRONLY), "wb") as file:
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
        old = self.path.with_name(self.path.name + ".1")
        old.unlink(missing_ok=True)
        os.link(self.path, old)  # the journal itself is never absent, not even for a moment
        os.replace(fresh, self.path)
        os.close(self._file)
        self._file = self._open()
        self._good_bytes = sum(map(len, lines))
        return True


def open_as_owner(path: Path, flags: int) -> int:
    """Open or make a file of mode 0600 that belongs to whom its folder belongs.

    Why: root may restore the journal of the agent's user; what it then makes must not lock the agent out.
    """
    file = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    folder = os.stat(path.parent)
    if os.geteuid() == 0 and os.fstat(file).st_uid == 0 != folder.st_uid:
        os.fchown(file, folder.st_uid, folder.st_gid)
    return file


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
