"""The suite itself: without a control plane it fails where it must not skip."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.support.burst_planes import two_planes
from lab.support.control_plane import BINARIES, binaries
from tests.conftest import TREE


@pytest.mark.long
@pytest.mark.parametrize(("ci", "code", "word"), [("1", 1, "1 error"), ("", 0, "1 skipped")])
def test_a_missing_control_plane_fails_under_ci(tmp_path: Path, ci: str, code: int, word: str) -> None:
    away = {"CARICO_CACHE": str(tmp_path), "KUBEBUILDER_ASSETS": str(tmp_path), "CI": ci}
    one = "tests/kube/test_node.py::test_good_certificate"
    command = [sys.executable, "-m", "pytest", "-m", "kube", "-o", "addopts=", "-p", "no:cacheprovider", one]
    ran = subprocess.run(
        command, cwd=TREE, env={**os.environ, **away}, capture_output=True, text=True, check=False, timeout=120
    )
    assert (ran.returncode, word in ran.stdout) == (code, True), ran.stdout


def test_nothing_is_run_again_until_it_passes() -> None:
    """A race that was seen once is a verdict."""
    texts = [(TREE / name).read_text() for name in ("Makefile", "setup.cfg", "tests/conftest.py")]
    texts += [file.read_text() for file in (TREE / "tests/kube").glob("*.py") if file.name != Path(__file__).name]
    words = ("--reruns", "rerunfailures", "flaky", "--last-failed")
    assert [word for text in texts for word in words if word in text] == []


@pytest.mark.kube
def test_a_set_up_that_fails_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both planes share a folder with a controller manager that ends at once."""
    try:
        whole = binaries()
    except LookupError as error:
        pytest.skip(f"no control plane: {error}")
    given = tmp_path / "bin"
    given.mkdir()
    for name in BINARIES:
        (given / name).symlink_to(whole / name)
    (given / "kube-controller-manager").symlink_to(shutil.which("false") or "")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
    with pytest.raises(AssertionError, match="kube-controller-manager ended"), two_planes(tmp_path):
        pass
    left = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            left += [command for command in [file.read_bytes()] if str(tmp_path).encode() in command]
    assert left == []
