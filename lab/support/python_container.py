"""This Python with all it has installed, inside a container of a private containerd: the host's folders, read-only."""

import os
import sys
from pathlib import Path

from lab.support import TREE
from lab.support.containerd import PrivateContainerd


def prepare(containerd: PrivateContainerd) -> None:
    """Links that the host has in its root folder and that its programs need."""
    for name in ("lib", "lib64"):
        host, own = Path("/") / name, containerd.rootfs / name
        if host.is_symlink() and not own.is_symlink():
            own.symlink_to(os.readlink(host))


def mounts(*more: tuple[Path, str, str]) -> list[str]:
    """Flags of `ctr run`; `more`: a folder of the host, where it is in the container, and `ro` or `rw`."""
    folders = {"/usr", sys.base_prefix, sys.prefix, str(TREE)}
    folders |= {
        f"/{name}" for name in ("lib", "lib64") if not Path(f"/{name}").is_symlink() and Path(f"/{name}").exists()
    }
    flags = [_mount(folder, folder, "ro") for folder in sorted(folders)]
    flags += [_mount(str(folder), there, mode) for folder, there, mode in more]
    environment = {"PYTHONPATH": str(TREE), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return [
        *(part for flag in flags for part in ("--mount", flag)),
        *(part for name, value in environment.items() for part in ("--env", f"{name}={value}")),
    ]


def _mount(source: str, target: str, mode: str) -> str:
    return f"type=bind,src={source},dst={target},options=rbind:{mode}"
