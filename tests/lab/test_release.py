"""A release: the same bytes every time, of what is pinned, and nothing that a package leaves behind."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from carico_agent.cli import COMMANDS
from lab.cluster.container_image import write_image
from lab.release import chart, image, man
from lab.release.__main__ import build_sdist, build_wheel
from lab.release.debian import AFTER_INSTALL, AFTER_REMOVAL, BEFORE_REMOVAL
from lab.release.environment import CannotRelease
from lab.site.__main__ import BrokenLink, pages
from tests.conftest import TREE

EPOCH = 1_700_000_000
SHIPPED = ("carico_agent", "plugins", "systemd")


def copy_of_the_tree(folder: Path) -> Path:
    for name in SHIPPED:
        shutil.copytree(TREE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TREE / name, folder / name)
    return folder


@pytest.mark.long
def test_wheel_and_sdist_are_the_same_twice(tmp_path: Path) -> None:
    """Also where the tree has been built before: a module that was deleted since stayed in the wheel."""
    made = []
    for name in ("one", "another"):
        dist, tree = tmp_path / f"{name}.dist", copy_of_the_tree(tmp_path / name)
        dist.mkdir()
        if name == "another":
            (tree / "build/lib/carico_agent").mkdir(parents=True)
            (tree / "build/lib/carico_agent/deleted.py").touch()
        sdist = build_sdist(dist, EPOCH, tree)
        made.append((sdist.read_bytes(), build_wheel(dist, EPOCH, sdist).read_bytes()))
    assert made[0] == made[1]


def test_every_command_has_a_man_page() -> None:
    found = man.pages()
    assert found.keys() == {"carico.1", *(f"carico-{name.replace('_', '-')}.1" for name in COMMANDS)}
    for name, text in found.items():
        assert text.startswith(".TH CARICO"), name
        assert ".SH SYNOPSIS" in text, name
    assert "\\-\\-once\nprint one view and exit" in found["carico-top.1"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_finds_nothing_wrong_with_the_man_pages() -> None:
    for name, text in man.pages().items():
        checked = subprocess.run(
            ["groff", "-man", "-ww", "-Kutf8", "-Tutf8"], input=text.encode(), capture_output=True, check=True
        )
        assert checked.stderr == b"", name


@pytest.mark.parametrize("script", [AFTER_INSTALL, BEFORE_REMOVAL, AFTER_REMOVAL], ids=["postinst", "prerm", "postrm"])
def test_the_scripts_of_the_package_are_shell(script: str) -> None:
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


def test_the_packages_of_the_image_are_pinned_by_their_bytes() -> None:
    lines = [line for line in image.LOCK.read_text().splitlines() if not line.startswith("#")]
    assert tuple(line.split()[0] for line in lines) == image.NAMES
    assert all(re.fullmatch(r"\S+ \S+ [0-9a-f]{64}", line) for line in lines)


def test_other_bytes_than_the_pinned_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "packages.sh"
    fake.write_text('#!/bin/sh\necho other >"$2/dash.deb"\n')
    fake.chmod(0o755)
    monkeypatch.setattr(image, "SCRIPT", fake)
    with pytest.raises(CannotRelease, match="not the pinned bytes: base-files, dash"):
        image._packages(tmp_path / "packages")


def test_the_chart_is_packed_alike_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (chart.package(tmp_path / name, EPOCH) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as files:
        assert "carico/Chart.yaml" in files.getnames()


def test_the_site_has_every_page_and_what_they_link_to() -> None:
    found = {str(path) for path in pages(TREE)}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/upgrade.md", "docs/page.png"} <= found
    assert {str(path.relative_to(TREE)) for path in (TREE / "docs").rglob("*.md")} <= found


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "CHANGELOG.md").touch()
    (tmp_path / "README.md").write_text("[gone](docs/gone.md)\n")
    with pytest.raises(BrokenLink, match=r"README.md: docs/gone.md is no file"):
        pages(tmp_path)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="MkDocs is not installed (make site)")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "lab.site", str(tmp_path / "site")], cwd=TREE, check=True)
    assert "How many more Pods" in (tmp_path / "site/index.html").read_text()
    index = json.loads((tmp_path / "site/search/search_index.json").read_text())
    assert len({entry["location"].partition("#")[0] for entry in index["docs"]}) >= 20


def test_an_image_of_the_same_layers_is_the_same_twice(tmp_path: Path) -> None:
    """The archive had the time at which a layer was made."""
    layer, made = tmp_path / "layer.tar", []
    for time_s in (1, 2_000_000):
        layer.write_bytes(b"layer")
        os.utime(layer, (time_s, time_s))
        write_image(tmp_path / "image.tar", "a:1", [layer], {})
        made.append((tmp_path / "image.tar").read_bytes())
    assert made[0] == made[1]
