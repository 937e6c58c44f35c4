"""The suite itself: without a control plane it fails where it must not skip."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TREE
from tests.kube.kubelet import configuration, runtime_flags


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


@pytest.mark.parametrize("version", [(1, 20), (1, 26), (1, 27), (1, 36)])
def test_a_kubelet_is_started_as_its_version_wants_it(version: tuple[int, int]) -> None:
    config, flags = configuration(version, "c", "unix:///s", 1), runtime_flags(version, "unix:///s")
    in_file = config.get("containerRuntimeEndpoint") == "unix:///s"
    in_flags = flags == ["--container-runtime=remote", "--container-runtime-endpoint=unix:///s"]
    assert (in_file, in_flags) == (version >= (1, 27), version < (1, 27))
    assert ("failCgroupV1" in config) == (version >= (1, 31))
