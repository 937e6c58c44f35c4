"""Puts the old values back: at stop, after a crash (ExecStopPost), at the next start, and after uninstalling.

Needs nothing but the journal, the standard library and three sibling files. Calling it twice is the same as once. A
value that is no longer ours is left alone, and so is a cgroup that has ended or was reborn.
"""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from carico_agent.node.plugin_host import knobs
from carico_agent.node.plugin_host.cgroupfs import CgroupFiles, Gone, Untrusted
from carico_agent.node.plugin_host.journal import Entry, Journal

How = Literal["restored", "already", "foreign", "gone", "refused", "failed"]

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of one open entry. Only `failed` stays open and is tried again."""

    entry: Entry
    how: How
    detail: str = ""


def restore(path: str | os.PathLike[str], files: CgroupFiles | None = None) -> list[Restored]:
    """Put back everything a journal holds; raises JournalBusy while an agent has it open."""
    if not os.path.exists(path):
        return []
    journal = Journal(path)
    try:
        return restore_all(journal, files or CgroupFiles())
    finally:
        journal.close()


def restore_all(journal: Journal, files: CgroupFiles) -> list[Restored]:
    done = []
    for entry in ordered(journal.entries.values()):
        result = put_back(entry, files, journal.boot)
        done.append(result)
        close_entry(journal, result)
    try:
        journal.compact()
    except OSError:  # a full disk: the journal stays long, nothing is lost
        return done
    return done


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """Growing first, parents before children; then shrinking, children before parents; cpu.max.burst keeps below
    cpu.max on the way (EINVAL otherwise)."""

    def rank(entry: Entry) -> tuple[int, int, int]:
        key, now = entry.knob.key, entry.ours[-1]
        grows = _unbelievable(entry) is None and knobs.larger(key, spelled(key, now), entry.original) != now
        burst = key == "cpu.max.burst"
        deep = knobs.depth(entry.knob.cgroup)
        return (0, deep, int(burst)) if grows else (1, -deep, int(not burst))

    return sorted(entries, key=rank)


def put_back(entry: Entry, files: CgroupFiles, boot: str) -> Restored:
    """Write the original value if one of ours stands there. Touches the cgroup only, not the journal."""
    knob = entry.knob
    if knob.boot != boot:
        return Restored(entry, "gone", "of an earlier boot")
    if problem := _unbelievable(entry):
        return Restored(entry, "refused", problem)
    try:
        now = spelled(knob.key, files.read(knob.cgroup, knob.inode, knob.key))
        if now == entry.original:
            return Restored(entry, "already")
        if now not in entry.ours:
            return Restored(entry, "foreign", f"another program wrote {now!r}")
        _write_original(entry, files)
        now = spelled(knob.key, files.read(knob.cgroup, knob.inode, knob.key))
    except Gone as gone:
        return Restored(entry, "gone", str(gone))
    except Untrusted as untrusted:
        return Restored(entry, "refused", untrusted.strerror or "")
    except OSError as error:
        return Restored(entry, "failed", f"{knob.key}: {error.strerror or error}")
    # Something between: the kernel's spelling of "as my parent", or a quicker writer. Either way not ours.
    return Restored(entry, "restored", "" if now == entry.original else f"reads {now!r}")


def _unbelievable(entry: Entry) -> str | None:
    """Why this is no entry of ours. The journal belongs to the agent's user, and root may be the one who restores."""
    if not knobs.is_setting(entry.knob.key):
        return f"{entry.knob.key!r} is not a file we write"
    try:
        knobs.canon(entry.knob.key, entry.original, PAGE_BYTES)
    except ValueError as error:
        return str(error)
    return None


def _write_original(entry: Entry, files: CgroupFiles) -> None:
    knob = entry.knob
    try:
        files.write(knob.cgroup, knob.inode, knob.key, entry.original)
    except OSError as error:
        if knob.key != "cpuset.cpus" or entry.original or error.errno != errno.ENOSPC:
            raise
        # Linux 6.1 does not empty the cpuset of a group with tasks (ENOSPC, seen in tests/vm). What the parent has
        # now allows the same; only CPUs that come online later are not in it. Any other error is tried again.
        files.write(
            knob.cgroup, knob.inode, knob.key, files.read(os.path.dirname(knob.cgroup), None, "cpuset.cpus.effective")
        )


def spelled(key: str, text: str) -> str:
    """A value as we compare it; what we cannot parse is compared as it stands (it is surely not ours)."""
    try:
        return knobs.canon(key, text, PAGE_BYTES)
    except ValueError:
        return text.strip()


def close_entry(journal: Journal, result: Restored) -> None:
    """Note it. When the disk is full the entry stays open; restoring again finds the original and is content."""
    if result.how == "failed":
        return
    try:
        journal.closed(result.entry.knob, result.how)
    except OSError:
        return
