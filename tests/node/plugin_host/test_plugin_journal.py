"""The journal: what is on disk when everything goes wrong, and that it is read back as it was meant."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carico_agent.node.plugin_host import journal as journals
from carico_agent.node.plugin_host import restore_zipapp
from carico_agent.node.plugin_host.journal import (
    Journal,
    JournalBusy,
    Knob,
    OldJournal,
    decode,
    encode,
    fold,
    read_records,
)
from carico_agent.node.plugin_host.restore import restore

from .plugin_fakes import FakeKernel, make_cgroup, value_of


def knob(path, inode, key="memory.high", boot="boot-1"):
    return Knob(boot, str(path), inode, key)


@pytest.fixture
def journal(tmp_path):
    opened = Journal(tmp_path / "state/journal", boot="boot-1")
    yield opened
    opened.close()


def test_an_intent_survives_and_keeps_the_first_original(journal):
    k = knob("/cg/a", 1)
    journal.intent(k, "max", "4096", "p", "why")
    journal.applied(k, "4096")
    journal.intent(k, "4096", "8192", "p", "why")
    entry = fold(journal.path).entries[k]
    assert (entry.original, entry.ours, entry.applied) == ("max", ["4096", "8192"], False)
    journal.applied(k, "8192")
    assert fold(journal.path).entries[k].ours == ["8192"]
    journal.closed(k, "restored")
    assert fold(journal.path).entries == {}


def test_an_intent_and_an_end_are_on_the_disk_when_the_call_returns(journal, monkeypatch):
    """What is not synced may be forgotten by a power failure: that ours was applied can be found out again."""
    synced, k = [], knob("/cg/a", 1)
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    own = journal.path.stat().st_ino
    for call, times in (
        (lambda: journal.intent(k, "max", "4096", "p", "why"), 1),
        (lambda: journal.applied(k, "4096"), 0),
        (lambda: journal.closed(k, "restored"), 1),
    ):
        synced.clear()
        call()
        assert synced == [own] * times


def test_a_failed_first_write_leaves_nothing_open(journal):
    k = knob("/cg/a", 1)
    journal.intent(k, "max", "4096", "p", "why")
    journal.failed(k, "max", "EBUSY")
    assert journal.entries == {} == fold(journal.path).entries


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_cut_off_and_the_rest_kept(tmp_path, cut):
    path = tmp_path / "journal"
    first = Journal(path, "boot-1")
    first.intent(knob("/cg/a", 1), "max", "4096", "p", "why")
    whole = path.stat().st_size
    first.intent(knob("/cg/b", 2), "max", "4096", "p", "why")
    first.close()
    os.truncate(path, path.stat().st_size - cut)
    again = Journal(path, "boot-1")
    assert [k.cgroup for k in again.entries] == ["/cg/a"] and path.stat().st_size == whole
    again.intent(knob("/cg/c", 3), "max", "4096", "p", "why")
    again.close()
    assert [k.cgroup for k in fold(path).entries] == ["/cg/a", "/cg/c"]


def test_a_damaged_line_in_the_middle_is_skipped_and_counted(journal):
    for n in range(3):
        journal.intent(knob(f"/cg/{n}", n), "max", "4096", "p", "why")
    data = journal.path.read_bytes().replace(b"/cg/1", b"/cg/9")
    journal.path.write_bytes(data)
    folded = fold(journal.path)
    assert folded.damaged == 1 and [k.cgroup for k in folded.entries] == ["/cg/0", "/cg/2"]
    assert list(read_records(journal.path))[1] is None


def test_lines_are_json_that_others_can_read(journal):
    import json

    journal.intent(knob("/cg/a", 1), "max", "4096", "memory_qos", 'why: "quoted"\n')
    record = json.loads(journal.path.read_text())
    assert {"event", "time", "cgroup", "inode", "key", "old", "new", "plugin", "reason", "boot"} <= set(record)
    assert decode(encode({"a": "~crc"})) == {"a": "~crc"} and decode(b"") is None and decode(b"{}\n") is None


@pytest.mark.parametrize("failing", ["_write", "_sync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_or_dying_disk_refuses_and_leaves_no_half_line(journal, monkeypatch, failing, number):
    journal.intent(knob("/cg/a", 1), "max", "4096", "p", "why")
    before = journal.path.read_bytes()

    def fail(*data):
        if data:
            os.write(journal._file, data[0][:10])  # half of it reached the file
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(journal, failing, fail)
        with pytest.raises(OSError):
            journal.intent(knob("/cg/b", 2), "max", "4096", "p", "why")
    assert journal.path.read_bytes() == before and len(journal.entries) == 1
    journal.intent(knob("/cg/c", 3), "max", "4096", "p", "why")
    assert [k.cgroup for k in fold(journal.path).entries] == ["/cg/a", "/cg/c"]


def test_a_short_write_counts_as_full(journal, monkeypatch):
    monkeypatch.setattr(journal, "_write", lambda data: os.write(journal._file, data[:5]))
    with pytest.raises(OSError, match="full"):
        journal.intent(knob("/cg/a", 1), "max", "4096", "p", "why")
    assert journal.path.read_bytes() == b""


def test_compaction_keeps_open_entries_and_the_history(journal, monkeypatch):
    monkeypatch.setattr(journals, "COMPACT_BYTES", 500)
    k = knob("/cg/a", 1)
    journal.intent(k, "max", "4096", "p", "why")
    journal.applied(k, "4096")
    assert journal.compact() is False
    for _ in range(5):
        journal.intent(knob("/cg/b", 2), "max", "4096", "p", "why")
        journal.closed(knob("/cg/b", 2), "restored")
    entries = dict(journal.entries)
    assert journal.compact() is True
    assert fold(journal.path).entries == entries and len(list(read_records(journal.path))) == 1
    assert len(list(read_records(f"{journal.path}.1"))) == 12
    journal.closed(k, "restored")
    assert fold(journal.path).entries == {}


def test_only_one_process_has_it(journal):
    with pytest.raises(JournalBusy, match="agent is running"):
        restore(journal.path)


def test_restore_puts_back_what_is_ours_and_only_that(tmp_path):
    path, kernel = tmp_path / "journal", FakeKernel()
    cgroups = {name: make_cgroup(tmp_path / name) for name in ("ours", "foreign", "reborn", "gone", "already")}
    journal = Journal(path)
    for name, inode in cgroups.items():
        journal.intent(knob(tmp_path / name, inode, boot=journal.boot), "max", "8192", "p", "why")
        (tmp_path / name / "memory.high").write_text("8192\n")
    journal.intent(knob(tmp_path / "ours", cgroups["ours"], "memory.low", boot="an earlier boot"), "7", "0", "p", "why")
    journal.close()
    (tmp_path / "foreign/memory.high").write_text("4096\n")
    (tmp_path / "already/memory.high").write_text("max\n")
    (tmp_path / "reborn").rename(tmp_path / "removed")
    make_cgroup(tmp_path / "reborn", memory_high="8192")
    (tmp_path / "gone").rename(tmp_path / "grave2")
    done = {(r.entry.knob.cgroup.rpartition("/")[2], r.entry.knob.key): r.how for r in restore(path, kernel)}
    assert done == {
        ("ours", "memory.high"): "restored",
        ("foreign", "memory.high"): "foreign",
        ("reborn", "memory.high"): "gone",
        ("gone", "memory.high"): "gone",
        ("already", "memory.high"): "already",
        ("ours", "memory.low"): "gone",
    }
    values = [value_of(tmp_path / name, "memory.high") for name in ("ours", "foreign", "reborn")]
    assert values == ["max", "4096", "8192"]
    assert restore(path, kernel) == [], "calling it twice is the same as once"


def test_a_failed_restore_stays_open_and_is_tried_again(tmp_path):
    path, kernel, inode = tmp_path / "journal", FakeKernel(), make_cgroup(tmp_path / "a", memory_high="8192")
    journal = Journal(path)
    journal.intent(knob(tmp_path / "a", inode, boot=journal.boot), "max", "8192", "p", "why")
    journal.close()
    kernel.fuse.arm(1, OSError(errno.EBUSY, "busy"))
    assert [r.how for r in restore(path, kernel)] == ["failed"]
    assert [r.how for r in restore(path, kernel)] == ["restored"]
    assert value_of(tmp_path / "a", "memory.high") == "max"


def test_a_cpuset_that_may_not_be_emptied_gets_what_its_parent_has(tmp_path):
    make_cgroup(tmp_path / "pod")
    (tmp_path / "pod/cpuset.cpus.effective").write_text("0-3\n")
    inode = make_cgroup(tmp_path / "pod/box", cpuset_cpus="2")
    journal = Journal(tmp_path / "journal")
    journal.intent(knob(tmp_path / "pod/box", inode, "cpuset.cpus", journal.boot), "", "2", "p", "why")
    journal.close()

    class Kernel(FakeKernel):
        def write(self, cgroup, inode, key, value):
            if value == "":
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write(cgroup, inode, key, value)

    assert [r.how for r in restore(tmp_path / "journal", Kernel())] == ["restored"]
    assert value_of(tmp_path / "pod/box", "cpuset.cpus") == "0-3"


def test_burst_and_quota_are_restored_in_the_order_the_kernel_takes(tmp_path):
    inode, kernel = make_cgroup(tmp_path / "a", cpu_max="90000 100000"), FakeKernel()
    (tmp_path / "a/cpu.max.burst").write_text("60000\n")
    journal = Journal(tmp_path / "journal")
    journal.intent(knob(tmp_path / "a", inode, "cpu.max", journal.boot), "50000 100000", "90000 100000", "p", "w")
    journal.intent(knob(tmp_path / "a", inode, "cpu.max.burst", journal.boot), "1000", "60000", "p", "w")
    journal.close()
    restore(tmp_path / "journal", kernel)
    assert [key for _, key, _ in kernel.log] == ["cpu.max.burst", "cpu.max"]


def test_the_restore_zipapp_runs_without_the_agent(tmp_path):
    """As after `pip uninstall`: another python without carico, an empty folder, and the zip beside the journal."""
    inode = make_cgroup(tmp_path / "a", memory_high="8192")
    journal = Journal(tmp_path / "state/journal")
    journal.intent(knob(tmp_path / "a", inode, boot=journal.boot), "max", "8192", "p", "why")
    restore_zipapp.write(tmp_path / "state")
    zipapp = tmp_path / "state/restore.pyz"
    pretend = (  # an ordinary folder for a cgroup; test_plugin_restore.py has the refusal
        f"import runpy, sys; sys.path.insert(0, {str(zipapp)!r}); sys.argv = [{str(zipapp)!r}]\n"
        "from carico_agent.node.plugin_host import cgroupfs; cgroupfs.is_cgroup2 = lambda device: True\n"
        f"runpy.run_path({str(zipapp)!r}, run_name='__main__')"
    )
    command = [sys.executable, "-I", "-S", "-c", pretend]
    busy = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert busy.returncode == 1 and "agent is running" in busy.stderr
    journal.close()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == f"{tmp_path}/a/memory.high: restored", done.stderr
    assert value_of(tmp_path / "a", "memory.high") == "max"


def test_a_journal_of_an_older_version_is_refused_by_name(tmp_path: Path) -> None:
    """Its values stay in the journal for the version that wrote them; nothing is counted as damaged."""
    path = tmp_path / "journal"
    path.write_bytes(encode({"kind": "intent", "key": "memory.high"}))
    for _ in range(2):  # the first refusal leaves no lock behind
        with pytest.raises(OldJournal, match="is of an older version: put its values back with that one"):
            Journal(path)
    assert path.read_bytes() == encode({"kind": "intent", "key": "memory.high"})
