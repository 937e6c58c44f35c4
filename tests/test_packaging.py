"""What is shipped: the same bytes every time, and every dependency pinned by its hash."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.conftest import TREE

LOCK = (TREE / "deploy/requirements.txt").read_text()


def build(folder: Path, source: str) -> bytes:
    """A wheel from a copy of the tree, made in another folder and at another time than the last one."""
    copy = folder / source
    for name in ("carico_agent", "plugins", "systemd"):
        shutil.copytree(TREE / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        (copy / name).write_bytes((TREE / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run([*pip, "-w", str(folder / "out"), "."], cwd=copy, check=True, capture_output=True, env=environment)
    (wheel,) = (folder / "out").glob("*.whl")
    return wheel.read_bytes()


@pytest.mark.long
def test_the_wheel_is_the_same_twice(tmp_path: Path) -> None:
    assert build(tmp_path / "a", "one") == build(tmp_path / "b", "another")


@pytest.mark.long
def test_the_wheel_carries_the_licence_that_it_names(tmp_path: Path) -> None:
    with zipfile.ZipFile(BytesIO(build(tmp_path, "tree"))) as wheel:
        (licence,) = [name for name in wheel.namelist() if name.endswith("/LICENSE")]
        assert wheel.read(licence).decode() == (TREE / "LICENSE").read_text()
        (metadata,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        assert re.search(r"^License(-Expression)?: Apache-2.0$", wheel.read(metadata).decode(), re.MULTILINE)
    assert "Apache License\n                           Version 2.0" in (TREE / "LICENSE").read_text()
    assert "END OF TERMS AND CONDITIONS" in (TREE / "LICENSE").read_text()


def test_every_dependency_is_pinned_with_its_hash() -> None:
    setup = configparser.ConfigParser()
    setup.read(TREE / "setup.cfg")
    required = setup["options"]["install_requires"].split()
    wanted = {re.split(r"[><=]", line)[0].lower() for line in required}
    hashed = r"^([\w.-]+)==\S+ \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
    pinned = {name.lower() for name in re.findall(hashed, LOCK, re.MULTILINE)}
    assert wanted <= pinned, wanted - pinned
    assert len(re.findall(r"^[\w.-]+==", LOCK, re.MULTILINE)) == len(pinned), "a package without a hash"


def test_the_image_is_made_of_what_is_pinned() -> None:
    """Issue 37, 17: by digest, by hash, and without sources in a layer."""
    text = (TREE / "deploy/Containerfile").read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    bases = [rest for verb, rest in steps if verb == "FROM"]
    assert bases == ["${BASE} AS build", "${BASE}"], "the base is given by its digest"
    assert ["ARG", "BASE"] in steps, "and has no default"
    installs = [rest for verb, rest in steps if verb == "RUN" and "pip install" in rest]
    assert all("--require-hashes" in rest or ("--no-deps" in rest and "--no-index" in rest) for rest in installs)
    last = steps[max(index for index, (verb, _) in enumerate(steps) if verb == "FROM") :]
    assert [rest for verb, rest in last if verb in ("COPY", "ADD", "RUN")] == ["--from=build /opt/carico /opt/carico"]
    ignored = [line for line in (TREE / ".containerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored == ["*", "!deploy/requirements.txt", "!dist/*.whl"], "nothing else reaches the builder"
