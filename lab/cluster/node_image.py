"""The disk that every virtual node starts from, made once for each kubelet and each state of the tree.

Two steps. image.sh makes a Debian with containerd and all that carico needs (minutes, seldom). `ready` boots it once,
with the kubelet and the container images of this tree, lets containerd unpack them and powers off; what was written is
the disk from which nodes start in seconds.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.cluster.container_image import add_bytes, write_carico, write_tree
from lab.cluster.machine import Network, VirtualMachine, overlay
from lab.support import containerd
from lab.support.control_plane import binaries
from lab.support.wheels import needed_by

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
NEEDED = ("qemu-system-x86_64", "qemu-img", "mmdebstrap", "mke2fs", "busybox")
PACKAGES = "qemu-system-x86 qemu-utils mmdebstrap e2fsprogs busybox-static"
BOOT_TIMEOUT_S = 900
DONE = "node-image: done"
SETUP = f"""\
set -e
tar -xf /var/tmp/tree.tar -C / && rm /var/tmp/tree.tar
ctr --namespace k8s.io images import /var/tmp/carico.tar && rm /var/tmp/carico.tar
sync
echo "{DONE}"
systemctl --no-block poweroff
"""

Say = Callable[[str], None]


@dataclass(frozen=True)
class NodeImage:
    kernel: Path
    initrd: Path
    disk: Path


def missing() -> str:
    """Why no virtual node can run here; empty when one can."""
    if os.geteuid() != 0:
        return "the disk of a virtual node is made as root"
    if absent := [name for name in NEEDED if shutil.which(name) is None]:
        return f"not installed: {', '.join(absent)} (Debian: {PACKAGES})"
    if why := containerd.missing_newer():
        return why
    return "" if os.access(binaries() / "kubelet", os.X_OK) else f"no kubelet in {binaries()}"


def cache() -> Path:
    base = os.environ.get("CARICO_CACHE")
    return (Path(base) if base else Path.home() / ".cache/carico") / "cluster"


def ready(say: Say) -> NodeImage:
    """The newest disk, made now if there is none for this kubelet and this tree."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder), tempfile.TemporaryDirectory(dir=folder, prefix="work-") as work:
        wheel = _wheel(Path(work))
        script = HERE / "image.sh"
        command = [script, folder, containerd.NEWER.parents[1], needed_by(wheel, folder)]
        environment = {**os.environ, "PYTHON": sys.executable}
        made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        base = Path(made.stdout.strip())
        kubelet = binaries() / "kubelet"
        parts = b"".join(path.read_bytes() for path in (kubelet, wheel, Path(__file__)))
        disk = base / f"node-{hashlib.sha256(parts).hexdigest()[:12]}.qcow2"
        if not disk.exists():
            say("making the disk that virtual nodes start from (once for this tree: boots a machine)")
            _bootstrap(base, kubelet, wheel, Path(work)).rename(disk)
            _forget_others(base, disk)
        return NodeImage(base / "vmlinuz", base / "initrd", disk)


def _bootstrap(base: Path, kubelet: Path, wheel: Path, work: Path) -> Path:
    write_tree(work / "tree.tar", wheel)
    write_carico(work / "carico.tar", base / "base.tar", work / "tree.tar")
    files = work / "files.tar"
    with tarfile.open(files, "w") as tar:
        add_bytes(tar, "etc/node/setup.sh", SETUP.encode())
        tar.add(kubelet, "usr/local/bin/kubelet")
        for name in ("tree.tar", "carico.tar"):
            tar.add(work / name, f"var/tmp/{name}")
    disk, console = work / "disk.qcow2", work / "console.log"
    overlay(base / "disk.ext4", disk)
    machine = VirtualMachine(base / "vmlinuz", base / "initrd", disk, files, console, Network(1)).start()
    try:
        machine.wait(BOOT_TIMEOUT_S)
    finally:
        machine.kill()
        machine.wait()
    text = console.read_text(errors="replace")
    if DONE not in text:
        raise RuntimeError(
            f"the disk of the virtual node was not made; the machine's console ends with:\n{text[-3000:]}"
        )
    return disk


def _wheel(work: Path) -> Path:
    """The wheel of this tree: the same bytes for the same files."""
    copy = work / "tree"  # setuptools writes into the tree it builds
    skip = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", ".*_cache", "out", "lab", "tests", "docs")
    shutil.copytree(ROOT, copy, ignore=skip)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(work),
        str(copy),
    ]
    subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "315532800"})
    return next(work.glob("carico_agent-*.whl"))


def _forget_others(base: Path, keep: Path) -> None:
    """Disks of earlier states of the tree, unless a machine runs on one (its disk names it as its base)."""
    for old in base.glob("node-*.qcow2"):
        if old != keep and not _in_use(old):
            old.unlink()


def _in_use(disk: Path) -> bool:
    """QEMU locks the base of a running machine's disk; another writer is refused."""
    probe = ["qemu-io", "-f", "qcow2", "-c", "quit", str(disk)]
    return subprocess.run(probe, capture_output=True, check=False).returncode != 0


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two builds at once would only disturb each other."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
