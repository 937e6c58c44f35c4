"""Makes a release in dist/: wheel, sdist, list of materials, .deb packages, container image, Helm chart, checksums.

Wheel, sdist, packages, image and chart are the same bytes every time: their time is that of the last commit.
"""

import argparse
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from lab.release import ROOT, chart, debian, image
from lab.release.environment import LOCK, CannotRelease

PARTS = ("deb", "image", "chart")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.release", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="of deb, image and chart only this; repeatable")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where (default: dist)")
    parser.add_argument("--lock", action="store_true", help="pin the newest Debian packages of the image, and end")
    given = parser.parse_args()
    try:
        if given.lock:
            image.lock()
        else:
            release(given.dist, given.only or PARTS)
    except CannotRelease as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def release(dist: Path, parts: list[str] | tuple[str, ...]) -> None:
    dist.mkdir(parents=True, exist_ok=True)
    for old in dist.iterdir():
        old.unlink()
    epoch = commit_time()
    wheel = build_wheel(dist, epoch, build_sdist(dist, epoch))
    bill_of_materials(dist)
    if "chart" in parts:
        chart.package(dist, epoch)
    if "deb" in parts:
        debian.build(dist, wheel, epoch)
    if "image" in parts:
        image.build(dist, wheel, epoch)
    sums = "".join(f"{_sha256(path)}  {path.name}\n" for path in sorted(dist.iterdir()))
    (dist / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def commit_time() -> int:
    """[s since 1970]"""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    return int(
        subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    )


def build_wheel(dist: Path, epoch: int, sdist: Path) -> Path:
    """From the unpacked sdist: setuptools would take modules that were deleted since from a tree's `build` folder."""
    with tempfile.TemporaryDirectory() as name, tarfile.open(sdist) as files:
        files.extractall(name, filter="data")
        (source,) = Path(name).iterdir()
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
        subprocess.run([*command, str(dist.resolve()), "."], cwd=source, check=True, env=environment)
    (wheel,) = dist.glob("*.whl")
    return wheel


def build_sdist(dist: Path, epoch: int, source: Path = ROOT) -> Path:
    """setuptools' archive, packed again: it writes the times of this checkout's files."""
    code = "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(dist.resolve())]
    said = subprocess.run(command, cwd=source, check=True, stdout=subprocess.PIPE, text=True).stdout
    made = dist / said.split()[-1]
    with tarfile.open(made) as files:
        found = [(entry, _data(files, entry)) for entry in sorted(files, key=lambda entry: entry.name)]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for entry, data in found:
            clean = tarfile.TarInfo(entry.name)
            clean.type, clean.size, clean.mtime = entry.type, len(data), epoch
            clean.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            tar.addfile(clean, io.BytesIO(data))
    made.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return made


def _data(files: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = files.extractfile(entry) if entry.isreg() else None
    return file.read() if file else b""


def bill_of_materials(dist: Path) -> None:
    """CycloneDX."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    output = str(dist / "carico-agent.cdx.json")
    subprocess.run([tool, "requirements", str(LOCK), "--output-reproducible", "-o", output], check=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
