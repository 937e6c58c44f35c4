"""What `carico restore` must never do, whatever the journal says: it may run as root, the journal is the agent's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carico_agent.node.plugin_host import cgroupfs, restore_zipapp
from carico_agent.node.plugin_host.cgroupfs import CgroupFiles, Untrusted
from carico_agent.node.plugin_host.journal import Journal, Knob, encode, fold
from carico_agent.node.plugin_host.restore import restore

pytestmark = pytest.mark.real_cgroup2


def intent(cgroup: str, inode: int, key: str, boot: str, old: str = "max", new: str = "8192") -> bytes:
    return encode(
        {
            "event": "intent",
            "time": 0,
            "boot": boot,
            "cgroup": cgroup,
            "inode": inode,
            "key": key,
            "old": old,
            "new": new,
            "plugin": "p",
            "reason": "r",
        }
    )


def folder_of(path: Path) -> tuple[str, int]:
    path.mkdir(parents=True, exist_ok=True)
    return str(path), path.stat().st_ino


@pytest.mark.parametrize("key", ["../victim", "victim", "/etc/victim", "", ".", "memory.max", "cgroup.procs"])
def test_only_known_files_are_written(tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroupfs, "is_cgroup2", lambda device: True)
    cgroup, inode = folder_of(tmp_path / "group")
    target = tmp_path / "victim" if ".." in key else Path(cgroup) / (key.strip("/.") or "x").replace("/", "_")
    target.write_text("8192")
    journal = Journal(tmp_path / "journal")
    boot = journal.boot
    journal.close()
    (tmp_path / "journal").write_bytes(intent(cgroup, inode, key, boot))
    assert [done.how for done in restore(tmp_path / "journal")] == ["refused"]
    assert target.read_text() == "8192"


def test_an_absolute_key_does_not_leave_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroupfs, "is_cgroup2", lambda device: True)
    victim = tmp_path / "victim"
    victim.write_text("before")
    for key in (str(victim), "../victim"):
        with pytest.raises(Untrusted, match="no name of a file"):
            CgroupFiles().write(*folder_of(tmp_path / "group"), key, "x")
    assert victim.read_text() == "before"


def test_another_file_system_is_refused(tmp_path: Path) -> None:
    cgroup, inode = folder_of(tmp_path / "group")
    (tmp_path / "group/memory.high").write_text("8192")
    journal = Journal(tmp_path / "journal")
    journal.intent(Knob(journal.boot, cgroup, inode, "memory.high"), "max", "8192", "p", "r")
    journal.close()
    (done,) = restore(tmp_path / "journal")
    assert (done.how, done.detail) == ("refused", f"{cgroup} is not in a cgroup v2 tree")
    assert (tmp_path / "group/memory.high").read_text() == "8192"


def test_a_mounted_cgroup2_is_recognised() -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = [path for _, path, kind, *_ in mounts if kind == "cgroup2"]
    if not found:
        pytest.skip("no cgroup2 is mounted here")
    assert cgroupfs.is_cgroup2(os.stat(found[0]).st_dev)
    assert not cgroupfs.is_cgroup2(os.stat("/proc").st_dev)


@pytest.mark.parametrize("how", ["folder", "file"])
def test_links_are_not_followed(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroupfs, "is_cgroup2", lambda device: True)
    cgroup, inode = folder_of(tmp_path / "real/group")
    victim = tmp_path / ("real/group/memory.high" if how == "folder" else "victim")
    victim.write_text("8192")
    if how == "folder":  # nothing but the way there is a link
        (tmp_path / "link").symlink_to(tmp_path / "real")
        cgroup = str(tmp_path / "link/group")
    else:
        (tmp_path / "real/group/memory.high").symlink_to(victim)
    journal = Journal(tmp_path / "journal")
    journal.intent(Knob(journal.boot, cgroup, inode, "memory.high"), "max", "8192", "p", "r")
    journal.close()
    (done,) = restore(tmp_path / "journal")
    assert done.how == {"folder": "gone", "file": "failed"}[how]
    assert victim.read_text() == "8192"


@pytest.mark.parametrize("path", ["relative/group", "/sys/../etc", "", "/"])
def test_paths_are_absolute_and_plain(path: str) -> None:
    with pytest.raises(Untrusted):
        CgroupFiles().read(path, None, "memory.high")


def test_one_bad_entry_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroupfs, "is_cgroup2", lambda device: True)
    cgroup, inode = folder_of(tmp_path / "group")
    (tmp_path / "group/memory.high").write_text("8192")
    journal = Journal(tmp_path / "journal")
    boot = journal.boot
    journal.close()
    bad = [
        encode({"event": "intent", "key": "memory.high"}),
        encode(
            {"event": "intent", "boot": boot, "cgroup": [1], "inode": "x", "key": "memory.high", "old": 1, "new": 2}
        ),
        encode({"key": "memory.high"}),
        intent(cgroup, inode, "memory.low", boot, old="nonsense"),
        intent("/a\0b", inode, "memory.high", boot),
    ]
    (tmp_path / "journal").write_bytes(b"".join([*bad, intent(cgroup, inode, "memory.high", boot)]))
    assert sorted(done.how for done in restore(tmp_path / "journal")) == ["refused", "restored"]
    assert (tmp_path / "group/memory.high").read_text().strip() == "max"
    assert fold(tmp_path / "journal").entries == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it looks at files that root makes")
def test_what_root_restores_still_belongs_to_the_agent(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.chown(state, 65534, 65534)
    journal = Journal(state / "journal")
    journal.intent(Knob(journal.boot, "/nowhere/at-all", 1, "memory.high"), "max", "8192", "p", "r")
    journal.compact(force=True)
    journal.close()
    restore(state / "journal")
    for name in ("journal", "journal.lock", "journal.1"):
        found = (state / name).stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (65534, 65534, 0o600), name


def test_the_zipapp_refuses_as_well(tmp_path: Path) -> None:
    cgroup, inode = folder_of(tmp_path / "group")
    (tmp_path / "group/memory.high").write_text("8192")
    journal = Journal(tmp_path / "state/journal")
    journal.intent(Knob(journal.boot, cgroup, inode, "memory.high"), "max", "8192", "p", "r")
    journal.close()
    zipapp = restore_zipapp.write(tmp_path / "state")
    done = subprocess.run([sys.executable, "-I", "-S", str(zipapp)], cwd=tmp_path, capture_output=True, text=True)
    assert "refused" in done.stdout, json.dumps([done.stdout, done.stderr])
    assert (tmp_path / "group/memory.high").read_text() == "8192"
