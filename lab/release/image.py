"""The container image, without a container engine and without root: an OCI layout in a tar archive.

The lower layer is Debian packages, named in deploy/image-packages.txt by version and SHA-256: Python, its libraries,
and a shell and `find` for the liveness probe. There is no package manager, no pip and no compiler in it. The next layer
is /opt/carico, of pinned wheels; the last one is what the image's own Python compiles of both, because a container
cannot keep it. Files have one time, so that two builds are the same bytes.

Why packages are unpacked and not installed: their scripts need root, and none of these needs its script.
"""

import hashlib
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

from carico_agent import __version__
from lab.cluster.container_image import write_image
from lab.release import ROOT
from lab.release.environment import CannotRelease, download, make

LOCK = ROOT / "deploy/image-packages.txt"
HEADING = "# Debian 12 packages of the image: name, version, SHA-256. `python -m lab.release --lock` renews them.\n"
NAMES = (
    "base-files",
    "dash",
    "findutils",
    "libbz2-1.0",
    "libc6",
    "libcrypt1",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libpcre2-8-0",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libselinux1",
    "libsqlite3-0",
    "libssl3",
    "libstdc++6",
    "libuuid1",
    "python3.11-minimal",
    "zlib1g",
)
PYTHON = "3.11"
PREFIX = "/opt/carico"
MERGED = ("bin", "lib", "lib64", "sbin")
"""Folders that Debian 12 has in /usr, though some packages still name them without."""
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/lintian", "usr/share/locale")
CONFIG = {
    "Entrypoint": ["carico"],
    "User": "65532:65532",
    "Env": [f"PATH={PREFIX}/bin:/usr/bin", "PYTHONDONTWRITEBYTECODE=1", "OPENBLAS_NUM_THREADS=1"],
}
PASSWD = "root:x:0:0:root:/root:/usr/sbin/nologin\ncarico:x:65532:65532:carico:/:/usr/sbin/nologin\n"
SCRIPT = ROOT / "lab/release/packages.sh"


def lock() -> None:
    """Pin the newest versions."""
    found = subprocess.run([SCRIPT, "lock", *NAMES], check=True, stdout=subprocess.PIPE, text=True).stdout
    if missing := set(NAMES) - {line.split()[0] for line in found.splitlines()}:
        raise CannotRelease(f"the archive has no {', '.join(sorted(missing))}")
    LOCK.write_text(HEADING + found)


def build(dist: Path, wheel: Path, epoch: int) -> Path:
    made = dist / f"carico-{__version__}-image-amd64.tar"
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        _base(work / "base.tar", _packages(work / "packages"), epoch)
        make(work / "environment", PREFIX, PYTHON, [*download(work / "wheels", PYTHON), wheel])
        _environment(work / "environment.tar", work / "environment", epoch)
        _compile(work)
        layers = [work / f"{name}.tar" for name in ("base", "environment", "compiled")]
        write_image(made, f"docker.io/library/carico:{__version__}", layers, CONFIG)
    return made


def _compile(work: Path) -> None:
    """With the image's Python, on the image's libraries: another Python would write other bytes. -B: else it keeps
    what it imports itself, with the path of this folder."""
    root = work / "root"
    for layer in ("base", "environment"):
        with tarfile.open(work / f"{layer}.tar") as tar:
            tar.extractall(root, filter="fully_trusted")
    loader, libraries = root / "usr/lib64/ld-linux-x86-64.so.2", root / "usr/lib/x86_64-linux-gnu"
    python = [
        loader,
        "--library-path",
        libraries,
        root / f"usr/bin/python{PYTHON}",
        "-s",
        "-B",
        "-m",
        "compileall",
        "-q",
    ]
    options = ["--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/"]
    folders = [root / f"usr/lib/python{PYTHON}", root / f"{PREFIX[1:]}/lib"]
    environment = {"PYTHONHOME": str(root / "usr"), "PATH": ""}
    subprocess.run([*python, *options, *folders], env=environment, check=True)
    with tarfile.open(work / "compiled.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(root.rglob("__pycache__/*.pyc")):
            entry = tarfile.TarInfo(str(path.relative_to(root)))
            _add(tar, entry, 0, path.read_bytes())


def _packages(folder: Path) -> list[Path]:
    """Each pinned package, as one with exactly these bytes."""
    pinned = [line.split() for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    folder.mkdir()
    wanted = [f"{name}={version}" for name, version, _ in pinned]
    if subprocess.run([SCRIPT, "download", folder, *wanted], check=False).returncode:
        raise CannotRelease(
            f"the archive has other versions than {LOCK.name}: `python -m lab.release --lock` renews it"
        )
    found = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in folder.iterdir()}
    if wrong := [name for name, _, digest in pinned if digest not in found]:
        raise CannotRelease(f"not the pinned bytes: {', '.join(wrong)}")
    return [found[digest] for _, _, digest in pinned]


def _base(layer: Path, packages: list[Path], epoch: int) -> None:
    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as tar:
        seen = set[str]()
        for name in MERGED:
            _add(tar, _link(name, f"usr/{name}"), epoch)
        for package in packages:
            unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE)
            with tarfile.open(fileobj=io.BytesIO(unpacked.stdout)) as files:
                for entry in files:
                    if (name := _merged(entry.name)) and name not in seen and not name.startswith(LEFT_OUT):
                        seen.add(name)
                        data = files.extractfile(entry) if entry.isreg() else None
                        entry.name = name
                        if entry.islnk():
                            entry.linkname = _merged(entry.linkname)
                        _add(tar, entry, epoch, data.read() if data else b"")
        if "usr/bin/sh" not in seen:
            _add(tar, _link("usr/bin/sh", "dash"), epoch)
        for name, text in (("etc/passwd", PASSWD), ("etc/group", "root:x:0:\ncarico:x:65532:\n")):
            _add(tar, tarfile.TarInfo(name), epoch, text.encode())


def _merged(name: str) -> str:
    """
    >>> _merged("./lib/x86_64-linux-gnu/libc.so.6"), _merged("./usr/bin"), _merged("./lib"), _merged(".")
    ('usr/lib/x86_64-linux-gnu/libc.so.6', 'usr/bin', '', '')
    """
    name = name.removeprefix(".").strip("/")
    if name in MERGED:
        return ""
    return f"usr/{name}" if name.partition("/")[0] in MERGED else name


def _link(name: str, target: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, epoch: int, data: bytes = b"") -> None:
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname, entry.pax_headers = epoch, 0, 0, "", "", {}
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def _environment(layer: Path, folder: Path, epoch: int) -> None:
    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in (folder, *sorted(folder.rglob("*"))):
            entry = tar.gettarinfo(path, f"{PREFIX[1:]}/{path.relative_to(folder)}".removesuffix("/."))
            _add(tar, entry, epoch, path.read_bytes() if entry.isreg() else b"")
