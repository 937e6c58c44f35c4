"""The wheels that carico needs on a virtual machine without a network: fetched once, into a cache."""

import configparser
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = "3.11"
"""Debian 12's, which is what the virtual machines have."""


def needed_by(wheel: Path, cache: Path) -> Path:
    """A folder with `wheel` and all that it needs. Other dependencies in setup.cfg make another folder."""
    wanted = configparser.ConfigParser()
    wanted.read(ROOT / "setup.cfg")
    needs = wanted["options"]["install_requires"].encode()
    folder = cache / f"wheels-{hashlib.sha256(needs).hexdigest()[:12]}"
    if folder.exists():
        return folder
    fresh = Path(tempfile.mkdtemp(dir=cache))
    platforms = [
        part for version in ("2014", "_2_17", "_2_28") for part in ("--platform", f"manylinux{version}_x86_64")
    ]
    download = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "--python-version", PYTHON]
    subprocess.run([*download, *platforms, "-d", str(fresh), str(wheel)], check=True, stdout=subprocess.DEVNULL)
    fresh.rename(folder)
    return folder
