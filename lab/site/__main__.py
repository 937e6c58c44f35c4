"""Builds the site into a folder: `python -m lab.site [FOLDER]` (default: build/site).

The pages of the tree and all that they link to are copied into a folder with the same layout, so that a link that works
on a code host works here. MkDocs reads that folder; with --strict a broken link ends the build.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from lab.release import ROOT

CONFIG = Path(__file__).with_name("mkdocs.yml")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
ALSO = ("CHANGELOG.md",)


class BrokenLink(Exception):
    """A page links to a file that the tree does not have."""


def pages(root: Path) -> set[Path]:
    """Every page, and every file that one of them links to, relative to the tree."""
    found = set[Path]()
    waiting = [Path("README.md"), *map(Path, ALSO), *(path.relative_to(root) for path in (root / "docs").rglob("*.md"))]
    while waiting:
        page = waiting.pop()
        if page in found:
            continue
        found.add(page)
        if page.suffix == ".md":
            waiting += linked(root, page)
    return found


def linked(root: Path, page: Path) -> list[Path]:
    targets = []
    for target in LINK.findall((root / page).read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        place = (root / page.parent / target).resolve()
        if not place.is_file():
            raise BrokenLink(f"{page}: {target} is no file")
        targets.append(place.relative_to(root.resolve()))
    return targets


def build(folder: Path) -> None:
    source = folder.with_name(folder.name + "-source")
    shutil.rmtree(source, ignore_errors=True)
    for path in pages(ROOT):
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, source / path)
    settings = yaml.safe_load(CONFIG.read_text())
    settings |= {"docs_dir": str(source.resolve()), "site_dir": str(folder.resolve())}
    config = source.with_suffix(".yml")
    config.write_text(yaml.safe_dump(settings, sort_keys=False))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(config)]
    subprocess.run(command, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    print(f"site: {folder}/index.html")


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/site"))
