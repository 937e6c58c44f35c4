"""Reports in files: what a Pod may put there, and what the agent makes of it."""

import json
import os
import socket
from pathlib import Path

import pytest

from carico_agent.node.pods.pods import Pod
from carico_agent.node.pods.report_files import FILE, MAX_LOOKS, VOLUME, ReportFiles
from carico_agent.progress.client import ReportFile


def volume(folder: Path, uid: str) -> Path:
    made = folder / uid / VOLUME
    made.mkdir(parents=True)
    return made


def pod(uid: str) -> Pod:
    return Pod(uid, f"name-{uid}", "ml", uid=uid)


def found(files: ReportFiles, *uids: str, reads: int = 9) -> list[tuple[str, float, float]]:
    return [(one.uid, done, total) for one, done, total in files.poll({uid: pod(uid) for uid in uids}, reads)]


def test_each_write_is_one_report_of_the_pod_whose_folder_it_is(tmp_path: Path) -> None:
    files, written = ReportFiles(str(tmp_path)), ReportFile(str(volume(tmp_path, "a") / FILE))
    volume(tmp_path, "b")
    assert found(files, "a", "b", "c") == []
    written.write(b'{"done":1,"total":9}')
    assert found(files, "a", "b", "c") == [("a", 1, 9)]
    assert found(files, "a", "b", "c") == []  # it has not reported since
    written.write(b'{"done":2,"total":9,"uid":"b"}')
    assert found(files, "a", "b", "c") == [("a", 2, 9)]
    assert (len(files), files.bad) == (2, 0)


@pytest.mark.parametrize(
    "planted", ["link", "fifo", "socket", "folder", "half a line", "huge", "numbers", "bad", "list"]
)
def test_what_a_pod_puts_there_harms_no_one(tmp_path: Path, planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, files = volume(tmp_path, "evil"), ReportFiles(str(tmp_path))
    path = folder / FILE
    secret = tmp_path / "secret"
    secret.write_text('{"done": 7, "total": 9}')
    with socket.socket(socket.AF_UNIX) as listener:
        if planted == "link":
            path.symlink_to(secret)
        elif planted == "fifo":
            os.mkfifo(path)  # an open that waited for a writer would hang the agent, and this test
        elif planted == "socket":
            monkeypatch.chdir(folder)  # a socket's path has at most 107 bytes
            listener.bind(FILE)
        elif planted == "folder":
            path.mkdir()
        else:
            texts = {"half a line": '{"done": 1, "to', "huge": "[" * 100_000, "numbers": '{"done": 1e400, "total": 2}'}
            path.write_text(texts.get(planted, {"bad": '{"done": 3, "total": 2}'}.get(planted, "[1]")))
        good = volume(tmp_path, "good") / FILE
        good.write_text(json.dumps({"done": 1, "total": 2}))
        assert found(files, "evil", "good") == [("good", 1, 2)]
    assert files.bad == 1


def test_a_linked_volume_is_not_followed(tmp_path: Path) -> None:
    other = volume(tmp_path, "other") / FILE
    other.write_text('{"done": 1, "total": 2}')
    mine = tmp_path / "mine" / VOLUME
    mine.parent.mkdir(parents=True)
    mine.symlink_to(other.parent)
    assert found(ReportFiles(str(tmp_path)), "mine") == []


def test_half_a_line_is_read_again(tmp_path: Path) -> None:
    path, files = volume(tmp_path, "a") / FILE, ReportFiles(str(tmp_path))
    path.write_text('{"done": 1, "to')
    assert found(files, "a") == []
    path.write_text('{"done": 1, "total": 3}')
    assert found(files, "a") == [("a", 1, 3)]


def test_few_reads_at_a_time_and_all_in_turn(tmp_path: Path) -> None:
    files, uids = ReportFiles(str(tmp_path)), [f"p{n}" for n in range(7)]
    for uid in uids:
        (volume(tmp_path, uid) / FILE).write_text('{"done": 1, "total": 3}')
    looks = [found(files, *uids, reads=3) for _ in range(3)]
    assert [len(look) for look in looks] == [3, 3, 1]
    assert sorted(uid for look in looks for uid, _, _ in look) == uids


def test_a_pod_without_the_volume_costs_nothing_after_a_while(tmp_path: Path) -> None:
    files = ReportFiles(str(tmp_path))
    for _ in range(MAX_LOOKS):
        assert found(files, "late") == []
    (volume(tmp_path, "late") / FILE).write_text('{"done": 1, "total": 3}')
    assert found(files, "late") == []


def test_nothing_stays_open(tmp_path: Path) -> None:
    """A descriptor in a Pod's tmpfs keeps the kubelet from unmounting it."""
    files = ReportFiles(str(tmp_path))
    (volume(tmp_path, "a") / FILE).write_text('{"done": 1, "total": 3}')
    before = len(os.listdir("/proc/self/fd"))
    found(files, "a")
    assert len(os.listdir("/proc/self/fd")) == before
