"""Container images without a container engine: OCI layouts in tar archives, for `ctr images import`."""

import compileall
import hashlib
import io
import json
import os
import py_compile
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BUSYBOX = "localhost/busybox:1"
CARICO = "docker.io/library/carico:0.1.0"
"""What the `carico:0.1.0` of deploy/ means to a kubelet."""
BASE = "localhost/carico-base:1"
"""The lower layer of it, by a name of its own, so that containerd keeps it."""
OCI, BLOBS = "application/vnd.oci.image", "blobs/sha256"
PACKAGES = "opt/carico/lib/python3.11/site-packages"
COMMAND = b"#!/opt/carico/bin/python\nimport sys\nfrom carico_agent.cli import main\nsys.exit(main())\n"


def write_image(path: Path, tag: str, layers: Sequence[Path], config: Mapping[str, Any], left_out: int = 0) -> None:
    """`layers`: tar archives, the lowest first. `config`: Entrypoint, Env, … as in an image's configuration.

    The lowest `left_out` layers are named and not written: containerd has them already, of another image.
    """
    digests = [_sha256(layer) for layer in layers]
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
    image = json.dumps({"architecture": machine, "os": "linux", "config": dict(config), "rootfs": rootfs}).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": _described(image, f"{OCI}.config.v1+json"),
            "layers": [
                {"mediaType": f"{OCI}.layer.v1.tar", "digest": f"sha256:{digest}", "size": layer.stat().st_size}
                for layer, digest in zip(layers, digests, strict=True)
            ],
        }
    ).encode()
    named = {**_described(manifest, f"{OCI}.manifest.v1+json"), "annotations": {"io.containerd.image.name": tag}}
    with tarfile.open(path, "w") as tar:
        add_bytes(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        add_bytes(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [named]}).encode())
        for blob in (image, manifest):
            add_bytes(tar, f"{BLOBS}/{hashlib.sha256(blob).hexdigest()}", blob)
        for layer, digest in list(zip(layers, digests, strict=True))[left_out:]:
            tar.add(layer, f"{BLOBS}/{digest}", filter=_timeless)


def _timeless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Two builds of one image are the same bytes."""
    entry.mtime, entry.mode, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0o644, 0, 0, "", ""
    return entry


def _described(blob: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def write_busybox(path: Path) -> None:
    """The sandbox of every Pod, and what sample Pods run."""
    layer = path.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        for name in ("bin", "proc", "dev", "sys", "tmp", "etc"):
            _add_folder(tar, name)
        tar.add(shutil.which("busybox") or "", "bin/busybox")
        for name in ("sh", "sleep"):
            _add_link(tar, f"bin/{name}", "busybox")
    write_image(path, BUSYBOX, [layer], {"Entrypoint": ["/bin/busybox"], "Cmd": ["sleep", "1000000"]})
    layer.unlink()


def write_tree(path: Path, wheel: Path) -> None:
    """A layer with carico itself, above one that has what it needs: the wheel unpacked and compiled, and its command.

    Why not pip: it takes minutes in an emulated machine, and in a chroot it would run again for every change of the
    tree. The lower layer is made with pip.
    """
    with tempfile.TemporaryDirectory() as name, tarfile.open(path, "w") as tar:
        folder = Path(name)
        with zipfile.ZipFile(wheel) as files:
            files.extractall(folder)
        if sys.version_info[:2] == (3, 11):  # the machine's Python: what this one compiles, that one runs
            unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compileall.compile_dir(
                folder, quiet=1, stripdir=folder, prependdir=f"/{PACKAGES}", invalidation_mode=unchecked
            )
        for file in sorted(one for one in folder.rglob("*") if one.is_file()):
            add_bytes(tar, f"{PACKAGES}/{file.relative_to(folder)}", file.read_bytes())
        add_bytes(tar, "opt/carico/bin/carico", COMMAND, mode=0o755)


def write_base(path: Path, base: Path) -> None:
    write_image(path, BASE, [base], {})


def write_carico(path: Path, base: Path, tree: Path) -> None:
    """The image of deploy/Containerfile: the same command and environment, on Debian's Python. Needs `write_base`'s."""
    environment = ["PATH=/opt/carico/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1", "OPENBLAS_NUM_THREADS=1"]
    write_image(path, CARICO, [base, tree], {"Entrypoint": ["carico"], "Env": environment}, left_out=1)


def add_bytes(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(entry)


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
