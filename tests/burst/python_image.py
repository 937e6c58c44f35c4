"""An image with this machine's Python and this tree's burst: what the image of the steps has, and no more."""

import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import numpy

from tests.conftest import TREE
from tests.kube import kubelet as real

PYTHON = "localhost/python:1"
MULTIARRAY = f"_multiarray_umath{sysconfig.get_config_var('EXT_SUFFIX')}"
"""It needs the C++ library, as most of scikit-learn does."""
LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "tkinter", "ensurepip", "__pycache__", "lib2to3"}


def make_python_image(path: Path) -> None:
    real.make_image(path, PYTHON, _fill)


def _fill(tar: tarfile.TarFile) -> None:
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    program = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    tar.add(program, str(program), recursive=False)
    tar.add(stdlib, str(stdlib), filter=_kept)
    files = [program, *stdlib.glob("lib-dynload/*.so"), Path(numpy._core.__file__ or "").parent / MULTIARRAY]
    libraries = {library for file in files for library in _libraries(file) if "site-packages" not in library.parts}
    libc = next(library for library in libraries if library.name == "libc.so.6")
    libraries |= {libc.with_name(name) for name in ("libdl.so.2", "libpthread.so.0", "librt.so.1")}
    for library in sorted(libraries):
        tar.add(library.resolve(), str(library))
    link = tarfile.TarInfo("bin/python3")
    link.type, link.linkname = tarfile.SYMTYPE, str(program)
    tar.addfile(link)
    packages = str(Path(sysconfig.get_paths()["stdlib"], "site-packages"))
    for name in ("__init__.py", "burst/__init__.py", "burst/data_step.py", "burst/registry.py", "burst/s3.py"):
        tar.add(TREE / "carico_agent" / name, f"{packages}/carico_agent/{name}")


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = set(Path(entry.name).parts)
    return None if parts & LEFT_OUT or any(part.startswith("config-3") for part in parts) else entry


def _libraries(file: Path) -> list[Path]:
    found = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout.split()
    return [Path(word) for word in found if word.startswith("/")]
