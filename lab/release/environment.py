"""An environment as `python -m venv` makes it, for a Python that need not be on this machine.

Packages are wheels with the hashes of deploy/requirements.txt; carico is a wheel built from this tree. A wheel is
unpacked and not installed: pip would write the time and the path of this machine into the result.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

from lab.release import ROOT

LOCK = ROOT / "deploy/requirements.txt"
PLATFORMS = tuple(f"manylinux{version}_x86_64" for version in ("2014", "_2_17", "_2_28"))
COMMANDS = {"carico": "carico_agent.cli", "kubectl-carico": "carico_agent.kubectl"}
SCRIPT = "#!{prefix}/bin/python\nimport sys\nfrom {module} import main\nsys.exit(main())\n"


class CannotRelease(Exception):
    """Says what is missing."""


def download(folder: Path, python: str) -> list[Path]:
    """The pinned wheels for this version of Python; pip refuses what has another hash."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-r", str(LOCK)]
    command += ["--only-binary", ":all:", "--python-version", python, "-d", str(folder)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.glob("*.whl"))


def make(folder: Path, prefix: str, python: str, wheels: list[Path]) -> None:
    """The environment in `folder`, to be used at `prefix` beside /usr/bin/python3.X."""
    packages = folder / f"lib/python{python}/site-packages"
    packages.mkdir(parents=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as files:
            if odd := [name for name in files.namelist() if ".data/" in name.partition("/")[0] + "/"]:
                raise CannotRelease(f"{wheel.name} has files for other places: {odd[0]}")
            files.extractall(packages)
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(f"/usr/bin/python{python}")
    for name, module in COMMANDS.items():
        script = folder / "bin" / name
        script.write_text(SCRIPT.format(prefix=prefix, module=module))
    (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent == folder / "bin" else 0o644)
